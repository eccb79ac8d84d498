"""Read a CSV table of measured step times of named models."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from edgefl.cost.measure import Operator, measure
from edgefl.csv_table import read_csv
from edgefl.errors import UserError, locating, nearest
from edgefl.fleet import DeviceProfile, InputPipeline, step_seconds, step_signature
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.data_dependence import DataDependentError
from edgefl.models.registry import build_model
from edgefl.operator_kinds import Backend
from edgefl.scenario.named_step import read_shape, read_step
from edgefl.torch_settings import neutral_torch

LIBRARIES = {"timm_name": "timm", "torchvision_name": "torchvision", "python": "python"}
"""Optional columns that name the model in a library, or a Python file; ``model`` is then its title."""
UNITS = {"seconds": 1.0, "milliseconds": 1e-3}
PARTS = ("all", "head")
"""What is trained: all parameters, or only those of the column ``head``."""
TIMES = {
    f"{unit}{step}{part}": (factor, part.removeprefix("_") or "all")
    for unit, factor in UNITS.items()
    for step in ("", "_per_step")
    for part in ("", *(f"_{each}" for each in PARTS))
}
"""Columns of times: the factor to seconds, and what is trained."""
REQUIRED = ("model", "batch")
"""A column of a library replaces ``model``."""
OPTIONAL = {"method": "fedavg", "shape": "3x32x32", "classes": "10"}
OPTIONAL |= dict.fromkeys(("alpha", "settings", "head", "family", *LIBRARIES), "")
SAME = {"image": "shape"}
"""Other names of columns."""
EMPTY = ("", "nan", "n/a", "na", "none", "null", "-")
"""Cells of times that were not measured."""

SIMILAR = 0.8
"""An unknown column whose name is at least this similar to a known one is a mistake, others are ignored."""


@dataclass(frozen=True)
class StepTime:
    """A measured time of the step that ``text`` describes; with a pipeline it contains reading ``batch`` samples.

    ``part`` is ``head`` or ``all``: the trained parameters.
    """

    line: int
    text: str
    model: str
    family: str
    part: str
    operators: tuple[Operator, ...]
    seconds: float
    batch: int = 0
    pipeline: InputPipeline | None = None

    @property
    def signature(self) -> str:
        return step_signature(self.operators)

    def on(self, device: DeviceProfile) -> float:
        """The seconds that this device takes."""
        step = step_seconds(device, self.operators)
        return step + self.waiting(device, step)

    def waiting(self, device: DeviceProfile, step: float) -> float:
        """The seconds for which a step of ``step`` seconds waits for data."""
        return 0.0 if self.pipeline is None else self.pipeline.waiting(device, step, self.batch)

    def without_waiting(self, device: DeviceProfile) -> StepTime:
        """The step alone, if the device reads data as this one does."""
        rest = self.seconds - self.waiting(device, self.seconds)
        if not rest > 0:
            raise UserError(f"reading {self.batch} samples would take longer than the step ({self.text})")
        return replace(self, seconds=rest, pipeline=None)


@dataclass(frozen=True)
class StepTable:
    """The times of a table, why others are left out (by line and model), and the columns that are not read."""

    times: tuple[StepTime, ...]
    left_out: Mapping[str, str]
    ignored: tuple[str, ...] = ()


def read_step_table(
    file: Path, backend: Backend = "cpu", *, skip: bool = False, progress: Callable[[str], None] = lambda _: None
) -> StepTable:
    """Read the rows of a CSV file with a header, and count their steps; ``progress`` is called before each with a text.

    With ``skip``, rows with a mistake are left out like those of models that cannot be counted.

    Columns are :data:`REQUIRED`, one or two of :data:`TIMES`, and :data:`OPTIONAL`; others are ignored, unless their
    name is similar to one of these. ``head`` lists the parameters that times of the head train; ``settings`` are
    ``PATH=VALUE`` as for ``--set``, separated by semicolons, with ``training.local.input`` if times contain reading.
    Columns may be separated by semicolons or tabs; numbers may then have a decimal comma.
    """
    rows, columns, ignored = _rows(file)
    steps = _Steps(file, backend)
    times: list[StepTime] = []
    left_out: dict[str, str] = {}
    for number, (line, row) in enumerate(rows, start=1):
        progress(f"{number} of {len(rows)}: {_title(row)}")
        place = f"line {line}, {_title(row)}".rstrip(", ")
        for column in columns:
            if row[column].lower() in EMPTY:
                continue
            try:
                times.append(steps.time(line, row, column))
            except _NotCountedError as error:
                left_out[place] = str(error)
            except UserError as error:
                if not skip:
                    field = f"line {line}, {error.field or ''}".rstrip(", ")
                    raise UserError(error.message, field=field, file=str(file)) from None
                left_out[place] = str(UserError(error.message, field=error.field))
    if not times:
        first = next(iter(left_out.items()), ("", "expected at least one time, found none"))
        raise UserError(": ".join(each for each in first if each), file=str(file))
    return StepTable(tuple(times), left_out, ignored)


def family_of(model: str) -> str:
    """The family that a model's title begins with.

    >>> [family_of(name) for name in ("resnet18", "mobilenetv2_050", "inception_next_tiny", "vit_base")]
    ['resnet', 'mobilenetv2', 'inception', 'vit']
    """
    found = re.match(r"[A-Za-z]+?(?:v\d+)?(?=[^A-Za-z]|$)", model)
    return found[0].lower() if found else model


def _rows(file: Path) -> tuple[list[tuple[int, dict[str, str]]], list[str], tuple[str, ...]]:
    """The rows that are not empty, by column, the columns of times, and those that are ignored."""
    table = read_csv(file).of_equal_rows(file)
    header = [SAME.get(column, column) for column in table.header]
    times, ignored = _columns(header, str(file))
    with locating(file=str(file)):
        numbers = {column: table.numbers(header.index(column)) for column in times}
    rows = []
    for line, cells in table.rows:
        named = dict(zip(table.header, cells, strict=True))
        if "image" in named:
            named["shape"] = _with_channels(named["image"])
        for column, number in numbers.items():
            named[column] = named[column] if (seconds := number(named[column])).is_nan() else str(seconds)
        filled = {name: cell or OPTIONAL.get(name, "") for name, cell in named.items()}
        rows.append((line, {"model": "", **OPTIONAL, **filled}))
    if not rows:
        raise UserError("expected at least one row below the header", file=str(file))
    return rows, times, ignored


def _with_channels(image: str) -> str:
    """Three channels if only the sides are given: 224x224 or 224."""
    sides = image.strip().lower().replace("×", "x").split("x")
    return f"3x{sides[0]}x{sides[-1]}" if len(sides) < 3 and all(map(str.isdigit, sides)) else image


def _columns(header: Sequence[str], file: str) -> tuple[list[str], tuple[str, ...]]:
    valid = [*REQUIRED, *TIMES, *OPTIONAL, *SAME]
    ignored = tuple(column for column in header if column not in valid)
    for column in ignored:
        if get_close_matches(column, valid, n=1, cutoff=SIMILAR):
            raise UserError(f"unknown column '{column}'; {nearest(column, valid)}", file=file)
    for column in header:
        if column in valid and header.count(column) > 1:
            names = [column, *(other for other, known in SAME.items() if known == column)]
            raise UserError(f"expected one column {' or '.join(map(repr, names))}, found more", file=file)
    for column in REQUIRED:
        if column not in header and not (column == "model" and set(LIBRARIES) & set(header)):
            raise UserError(f"expected a column '{column}', found: {', '.join(header) or 'nothing'}", file=file)
    times = [column for column in TIMES if column in header]
    parts = [TIMES[column][1] for column in times]
    if not times or len(set(parts)) < len(parts):
        raise UserError(
            "expected one column of times, such as 'seconds', or one of times of all parameters and one of the head, "
            f"found: {', '.join(times or header)}",
            file=file,
        )
    return times, tuple(filter(None, ignored))


def _title(row: Mapping[str, str]) -> str:
    return row["model"] or next((row[column] for column in LIBRARIES if row[column]), "")


class _NotCountedError(Exception):
    """A model of the table cannot be built, or its step cannot be counted."""


class _Steps:
    """Counts the steps of rows, each once; a model is built once, without numbers."""

    def __init__(self, file: Path, backend: Backend) -> None:
        self.file, self.backend = file, backend
        self.built: dict[object, BlockModel] = {}
        self.counted: dict[tuple[str, ...], tuple[tuple[Operator, ...], InputPipeline | None, int]] = {}

    def time(self, line: int, row: Mapping[str, str], column: str) -> StepTime:
        factor, part = TIMES[column]
        title = _title(row)
        if not title:
            raise UserError("expected a value, found none", field="model")
        seconds = factor * _positive(row[column], column, "without a unit; empty if not measured")
        batch, classes = _whole(row, "batch"), _whole(row, "classes")
        changes = [each.strip() for each in row["settings"].split(";") if each.strip()]
        model = self._model(row, part)
        step = (model, *(row[name] for name in ("method", "settings", "shape", "classes", "alpha", "batch")))
        if step not in self.counted:
            spec, (method,) = read_step(model, row["method"], changes, batch)
            shape = read_shape(row["shape"], field="image" if "image" in row else "shape")
            operators = self._operators(self._built(spec, shape, classes), method, row)
            self.counted[step] = operators, method.local.input, method.local.step_samples
        operators, pipeline, samples = self.counted[step]
        text = f"{title}, {row['method']}, batch {batch}" + "".join(f", {change}" for change in changes)
        return StepTime(
            line=line,
            text=text + (", head alone" if part == "head" else ""),
            model=title,
            family=row["family"] or family_of(title.strip("{}").rpartition(":")[2].strip()),
            part=part,
            operators=operators,
            seconds=seconds,
            batch=samples,
            pipeline=pipeline,
        )

    def _model(self, row: Mapping[str, str], part: str) -> str:
        """As ``--model`` takes it."""
        named = [(column, row[column]) for column in LIBRARIES if row[column]]
        if len(named) > 1:
            raise UserError(f"expected one of the columns {', '.join(LIBRARIES)}", field=named[1][0])
        text = row["model"]
        if named:
            column, name = named[0]
            if column == "timm_name":
                name = name.partition(".")[0]  # what follows names weights
            elif column == "python":
                name = str(self.file.resolve().parent / name)
            text = f"{{{LIBRARIES[column]}: {_quoted(name)}}}"
        if part == "head":
            if not row["head"]:
                raise UserError("expected the names of the trained parameters, found none", field="head")
            if not text.startswith("{"):
                raise UserError(f"expected a model of a library or a Python file, found edgefl's {text}", field="model")
            text = f"{text[:-1]}, trainable: [{', '.join(map(_quoted, row['head'].split()))}]}}"
        return text

    def _built(self, spec: Any, shape: tuple[int, ...], classes: int) -> BlockModel:
        key = (spec.model_dump_json(), shape, classes)
        if key not in self.built:
            try:
                self.built[key] = build_model(spec, shape, classes, numbers=False)
            except UserError as error:
                raise _NotCountedError(str(UserError(error.message, file=error.file))) from None
        return self.built[key]

    def _operators(self, model: BlockModel, method: Method, row: Mapping[str, str]) -> tuple[Operator, ...]:
        model = method.objective.adapt(model)
        alpha = _whole(row, "alpha") if row["alpha"] else model.depth
        if alpha > model.depth:
            raise UserError(f"expected at most the model's {model.depth} blocks, found {alpha}", field="alpha")
        try:
            with neutral_torch():
                return measure(model, method, alpha, method.local.step_samples, self.backend).operators
        except (DataDependentError, UserError) as error:
            raise _NotCountedError(str(error)) from None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _positive(text: str, column: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise UserError(f"expected a number above 0 ({what}), found '{text}'", field=column)
    return number


def _whole(row: Mapping[str, str], column: str) -> int:
    number = _positive(row[column], column, "a whole one")
    if number != int(number):
        raise UserError(f"expected a whole number, found '{row[column]}'", field=column)
    return int(number)
