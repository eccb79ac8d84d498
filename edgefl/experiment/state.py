"""The content of ``unfinished.json`` and ``faulted.json``, checked because another user may have written it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from edgefl.errors import UserError
from edgefl.files import read_json
from edgefl.record.metric import Metric
from edgefl.record.summary import SCHEMA, SeedResult
from edgefl.validation import validated
from edgefl.version import __version__


class _Checked(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class Choices(_Checked):
    """The options of a command in addition to the scenario; a resumed run uses the same.

    Attributes:
        methods: labels, in order.
        device: where training runs.
        train: whether models are trained.
        cache: whether results of training are cached until their seed is done.
        emulated: whether real links carry the transfers.
    """

    methods: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    device: Literal["auto", "cpu", "cuda"]
    train: bool
    cache: bool = True
    emulated: bool = False


Positive = Annotated[int, Field(ge=1)]
Level = Annotated[int, Field(ge=0)]


class Finished(_Checked):
    """A finished run.

    Attributes:
        label, seed: the method's label and the seed.
        entry: its result in the summary.
        costs: (alpha, batch, capacity level) of each step cost that it used; older files have no level.
    """

    label: str
    seed: int = Field(ge=0)
    entry: SeedResult
    costs: list[
        Annotated[tuple[Positive, Positive], Field(strict=False)]
        | Annotated[tuple[Positive, Positive, Level], Field(strict=False)]
    ]

    @model_validator(mode="after")
    def _entry_fits(self) -> Finished:
        entry = self.entry
        if entry.seed != self.seed:
            raise UserError(f"expected the run's seed {self.seed}, found {entry.seed}", field="entry.seed")
        if entry.faulted and entry.stop.message is None:
            raise UserError("expected the message of the fault", field="entry.stop.message")
        return self


class State(_Checked):
    """The state of a run directory that is in progress, or finished with runs that ended by a fault.

    Attributes:
        edgefl: the version that created it.
        schema_version: the schema of the run directory's files.
        inputs: digests of the runs' input files, by field of the scenario.
        software: versions of the packages on which results depend, by name.
        choices: the command's options.
        seeds: all seeds, while seeds are added to a finished run: its scenario still has the former ones.
        finished: the finished runs.
    """

    edgefl: str
    schema_version: int
    inputs: dict[str, str]
    software: dict[str, str]
    choices: Choices
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False, min_length=1)] | None = None
    finished: tuple[Finished, ...] = Field(strict=False)

    def check(self, labels: Sequence[str], seeds: Sequence[int], metric: Metric, file: Path) -> None:
        """Check that the state fits a scenario.

        Args:
            labels: the scenario's methods.
            seeds: its seeds.
            metric: what its runs measure.
            file: the file of the state.

        Raises:
            UserError: a method or a seed is not in the scenario, or occurs twice.
        """
        chosen = self.choices.methods
        known = [(each.label, each.seed) for each in self.finished]
        if not set(chosen) <= set(labels) or len(set(chosen)) < len(chosen):
            raise damaged(file, "choices.methods", f"expected labels of the scenario, each once, found {list(chosen)}")
        for place, (label, seed) in enumerate(known):
            if label not in chosen or seed not in seeds or (label, seed) in known[:place]:
                found = f"expected a run of the scenario, each once, found '{label}' with seed {seed}"
                raise damaged(file, f"finished.{place}", found)
            if self.finished[place].entry.metric.metric != metric.named:
                raise damaged(file, f"finished.{place}.entry.metric", "expected the metric of the scenario's task")


def read_state(file: Path) -> State:
    """Read the state from a file.

    Raises:
        UserError: the file is damaged, or another version of edgefl wrote it.
    """
    try:
        data = read_json(file)
    except UserError as error:
        raise damaged(file, "", error.message) from None
    version = data.get("edgefl") if isinstance(data, dict) else None
    if isinstance(version, str) and (version, data.get("schema_version")) != (__version__, SCHEMA):
        found = f"was created by edgefl {version}, this is {__version__} (schema {SCHEMA} of the files)"
        raise UserError(f"{found}; only the same version can resume it", file=str(file.parent))
    try:
        return validated(State, data)
    except UserError as error:
        raise damaged(file, error.field or "", error.message) from None


def damaged(file: Path, field: str, reason: str) -> UserError:
    """The error for a state that cannot be continued, with the field that is wrong, if it is one."""
    where = f"{field}: " if field else ""
    return UserError(f"{file.name} is damaged ({where}{reason}); the run cannot be resumed", file=str(file.parent))
