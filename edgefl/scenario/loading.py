"""Load and check a scenario file, write a scenario with all defaults filled in, and the JSON schema of such files."""

import math
import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from edgefl import shipped
from edgefl.data.location import data_root
from edgefl.data.spec import data_sets_schema
from edgefl.errors import Note, UserError, nearest
from edgefl.files import user_path
from edgefl.input_file import code_files
from edgefl.options import Options
from edgefl.scenario.components import BANDWIDTH_SECTION, MODEL_SECTION, SELECTION_SECTION, TASK_SECTION
from edgefl.scenario.methods import methods_schema
from edgefl.scenario.overrides import (
    Override,
    Overrides,
    anchored,
    blaming_changes,
    code_in,
    each_at,
    overridden,
    parse_overrides,
)
from edgefl.scenario.scenario import Scenario
from edgefl.user_code import allow
from edgefl.validation import shown, validated
from edgefl.yaml_file import read_yaml

FLOWER = "flower"
"""The key of scenarios that run a Flower app (:mod:`edgefl.flower`)."""


def load_scenario(path_or_name: str | PathLike[str], overrides: Overrides = (), *, run_code: bool = True) -> Scenario:
    """A checked scenario with all device profiles embedded.

    Relative paths in a file start at the file's folder; those in overrides start at the working directory.

    Args:
        path_or_name: the path of a YAML file, or the name of a shipped scenario. A text that ends in ``.yaml`` or
            ``.yml``, or is the name of an existing file, is a path.
        overrides: changes made before it is checked, ``{"training.rounds": 20}`` or ``["training.rounds=20"]``.
        run_code: whether the Python files that it names may be executed; false for the scenario of a run directory,
            which somebody else may have sent.

    Raises:
        UserError: no such scenario, or something in it is wrong; the message contains file, field and what was
            expected.

    >>> load_scenario("5g_100clients", {"training.cohort": 5}).training.cohort
    5
    """
    name, folder, data = read_scenario(path_or_name)
    return check(data, parse_overrides(overrides), file=name, folder=folder, run_code=run_code)


def read_scenario(path_or_name: str | PathLike[str]) -> tuple[str, Path, Any]:
    """The name of a scenario file in messages, its folder, and its unchecked contents."""
    path = _located(path_or_name)
    name = str(path_or_name)
    try:
        return name, path.absolute().parent, _of_today(read_yaml(path))
    except UserError as error:
        raise UserError(error.message, file=name) from None


def _of_today(data: Any) -> Any:
    """The contents of a scenario file with the key that an earlier build had for the momentum that clients keep."""
    methods = data.get("methods") if isinstance(data, dict) else None
    for each in methods if isinstance(methods, list) else ():
        if isinstance(each, dict) and each.pop("persist_momentum", False) is True:
            each["local"] = {**(each.get("local") or {}), "optimizer": {"kind": "sgd", "state": "keep"}}
    return data


def _located(path_or_name: str | PathLike[str]) -> Path:
    """The file of a scenario; a shipped scenario may also be named by its path in a checkout."""
    name = str(path_or_name)
    path = user_path(path_or_name)
    is_a_path = not isinstance(path_or_name, str) or name.endswith((".yaml", ".yml"))
    shipped_files = shipped.files("scenarios")
    if path.exists() and (is_a_path or path.is_file() or name not in shipped_files):
        return path
    if name in shipped_files:
        return shipped_files[name]
    if is_a_path:
        known = path.parent.name == "scenarios" and path.stem in shipped_files
        hint = f"; the shipped scenario is called '{path.stem}'" if known else ""
        raise UserError(f"no such file{hint}", file=name)
    hint = nearest(name, shipped_files) if shipped_files else "this installation has no shipped scenarios"
    raise UserError(f"no such file or shipped scenario; {hint}", file=name)


def check(
    data: Any,
    changes: Sequence[Override] = (),
    *,
    file: str | None = None,
    folder: Path | None = None,
    run_code: bool = True,
) -> Scenario:
    """Plain data as a scenario.

    ``changes`` are made first. ``folder`` is that for relative paths in ``data``; the working directory if not given.
    ``file`` is the file's name in messages, ``run_code`` that of :func:`load_scenario`.
    """
    if not isinstance(data, Mapping):
        raise UserError(f"expected a mapping with the keys of a scenario, found {shown(data)}", file=file)
    with blaming_changes(changes, file):
        changed = changed_data(data, changes, folder)
        if FLOWER in changed:
            only = "only simulate, scenario validate, verify, report and timeline support it"
            raise UserError(f"this scenario runs a Flower app; {only}", field=FLOWER)
        for code in code_in(changed) if run_code else ():
            allow(code)  # before it is read, because it defines the options of its part
        with warnings.catch_warnings():
            if not run_code:
                warnings.simplefilter("ignore", Note)  # said when the run began, of numbers with the units of then
            scenario = validated(Scenario, changed)
    for code in code_files(scenario).values() if run_code else ():
        allow(code)
    return scenario


def changed_data(data: Mapping[str, Any], changes: Sequence[Override], folder: Path | None) -> dict[str, Any]:
    """The contents of a scenario file with changes and with absolute paths."""
    changed = anchored(overridden(anchored(data, folder or Path.cwd()), changes), Path.cwd())
    root = changed["data"].get("root") if isinstance(changed.get("data"), Mapping) else None
    changed = anchored(changed, data_root(root if isinstance(root, str) else None), only_files=True)
    _refuse_not_finite(changed)
    for option in REMOVED:
        for container, key in each_at(changed, option.path.split(".")):
            option.leave(container, key)
    return changed


class Removed(NamedTuple):
    """An option that earlier builds had or, with ``choice``, one value of an option.

    Run directories contain every option: a value in ``unused`` had no effect, and its key is ignored.
    """

    path: str  # dotted; * is any key or index
    instead: str
    unused: tuple[Any, ...] = (None,)
    choice: str | None = None

    def leave(self, container: Any, key: Any) -> None:
        """Drop the option from its mapping; UserError if its value had an effect."""
        value = container[key]
        if self.choice is None and value in self.unused:
            del container[key]
        elif self.choice in (None, value):
            what = "this option" if self.choice is None else f"the choice '{value}'"
            raise UserError(f"{what} was removed; instead: {self.instead}", field=self.path)


_TRANSPORT = "network.transport"
REMOVED = (
    Removed("data.feature_skew.kind", "noise, or data of your own", choice="brightness"),
    Removed("data.feature_skew.kind", "noise, or data of your own", choice="shift"),
    Removed("data.feature_skew.levels", "noise that grows with the client's number", ("graded",)),
    Removed("training.engine.convolutions", "kind: sequential where grouped convolutions are slow", ("grouped",)),
    Removed("sweep.halving", "optuna, or fewer settings (random)"),
    Removed(f"{_TRANSPORT}.header_bytes", "packet_bytes, of which 52 are headers", (52,)),
    Removed(f"{_TRANSPORT}.framing_bytes", "capacities of links without what frames take", (0,)),
    Removed(f"{_TRANSPORT}.restart_idle", "keep_alive; slow start begins again after an idle time", (True,)),
    Removed(f"{_TRANSPORT}.window", "links with the rate that the window allows"),
    Removed(f"{_TRANSPORT}.loss", "links with the rate that transfers reach in spite of losses", (0,)),
    Removed(f"{_TRANSPORT}.acknowledge_every", "initial_window; each packet is acknowledged", (1,)),
    Removed(f"{_TRANSPORT}.queue_spread", "queue: fifo, with a spread of 0.4", (0.4,)),
    Removed(f"{_TRANSPORT}.timeouts.factor", "first_wait; each further wait is 1.6 times longer", (1.6,)),
    Removed(f"{_TRANSPORT}.timeouts.longest_wait", "first_wait; no wait is longer than 2 min", (120,)),
    Removed(f"{_TRANSPORT}.timeouts.jitter", "first_wait; waits differ by up to 20 %", (0.2,)),
)
"""A scenario that sets one of them is refused by a sentence that names what replaces it."""


def with_overrides(scenario: Scenario, overrides: Overrides, *, run_code: bool = True) -> Scenario:
    """The same scenario with changes made to its resolved form."""
    return check(resolve(scenario), parse_overrides(overrides), file=scenario.name, run_code=run_code)


def resolve(scenario: Options) -> dict[str, Any]:
    """A scenario as plain data, with defaults filled in, device profiles embedded, and quantities in base units.

    It is read back as an equal scenario without any other file of edgefl.
    """
    return scenario.model_dump(mode="json", by_alias=True)


def _refuse_not_finite(data: Any, path: tuple[str, ...] = ()) -> None:
    """Refuse numbers such as ``.inf``, which satisfy bounds like "more than 0"."""
    if isinstance(data, float) and not math.isfinite(data):
        raise UserError(f"expected a finite number, found {data}", field=".".join(path))
    items = data.items() if isinstance(data, Mapping) else enumerate(data) if isinstance(data, list) else ()
    for name, inner in items:
        _refuse_not_finite(inner, (*path, str(name)))


def json_schema() -> dict[str, Any]:
    """The JSON schema of a scenario file, with the options of every registered part.

    >>> sorted(json_schema()["required"])
    ['data', 'fleet', 'methods', 'model', 'name', 'network', 'training']
    """
    schema = Scenario.model_json_schema(mode="validation")
    definitions = schema["$defs"]
    training = definitions["TrainingSpec"]
    for parent, name, described in (
        (schema, "task", TASK_SECTION.json_schema()),
        (schema, "data", data_sets_schema()),
        (schema, "model", MODEL_SECTION.json_schema()),
        (training, "selection", SELECTION_SECTION.json_schema()),
        (training, "bandwidth", BANDWIDTH_SECTION.json_schema()),
    ):
        meaning = parent["properties"][name]["description"]
        parent["properties"][name] = {**_lifted(described, definitions), "description": meaning}
    for name in ("targets", "budgets"):  # null is equivalent to omitting them
        allowed = schema["properties"][name]
        meaning = {key: allowed.pop(key) for key in ("description", "default", "title") if key in allowed}
        schema["properties"][name] = {"anyOf": [allowed, {"type": "null"}], **meaning}
    schema["properties"]["methods"] = _lifted(methods_schema(), definitions)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _lifted(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, dict):
        definitions.update({name: _lifted(inner, definitions) for name, inner in schema.get("$defs", {}).items()})
        return {key: _lifted(inner, definitions) for key, inner in schema.items() if key != "$defs"}
    if isinstance(schema, list):
        return [_lifted(inner, definitions) for inner in schema]
    return schema
