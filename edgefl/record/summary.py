"""The contents of ``summary.json``, written and read by one model; keys of a later edgefl are kept and ignored."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, Field

from edgefl.errors import UserError
from edgefl.files import read_json, write_file
from edgefl.options import Options
from edgefl.record.metric import Better, Metric
from edgefl.record.names import SWEEP
from edgefl.record.paths import RunPaths, how_to_continue, is_interrupted
from edgefl.validation import validated
from edgefl.version import __version__

SCHEMA = 2


class _Part(Options):
    model_config = ConfigDict(extra="allow")


class Stop(_Part):
    """Why a run ended, and after which round; ``message`` explains an early end."""

    reason: str
    round: int
    message: str | None = None


class Values(_Part):
    """Values of a metric; ``None`` if nothing was trained, and as accuracies if the task has another metric."""

    final: float | None = None
    best: float | None = None
    ema: float | None = None


class MetricResult(_Part):
    """The task's metric: its name, how to read it, and its values; ``None`` if nothing was trained.

    ``share`` says whether it is a share in [0, 1], ``title`` is its name in sentences. ``samples`` are those on which
    models are evaluated, ``labels`` their labels that count: one a sample, or the tokens or numbers of all. Both are
    missing if nothing was trained, if a Flower app tested the models, and in older runs.
    """

    name: str
    better: Better
    share: bool
    title: str
    samples: int | None = None
    labels: int | None = None
    final: float | None = None
    best: float | None = None
    ema: float | None = None

    @property
    def metric(self) -> Metric:
        return Metric(self.name, self.better, self.share, self.title)


class Figures(_Part):
    """A group of figures of :data:`~edgefl.record.figures.QUANTITIES`, by name: ``bytes.down``."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class TargetResult(_Part):
    """When a value of the metric (``accuracy``: if it is that) was first reached, and what was spent by then."""

    accuracy: float | None = None
    metric: str
    value: float
    reached: bool
    seconds: float | None = None
    bytes: int | None = None
    rounds: int | None = None
    flops: float | None = None
    joules: float | None = None


class BudgetResult(_Part):
    """The metric when a budget was exhausted; ``accuracy`` is the same if the metric is the accuracy."""

    kind: str
    limit: float
    accuracy: float | None = None
    metric: float | None = None


class ClientResult(_Part):
    """The metric on each client's own test data, after the personalisation ``kind``, if there is one."""

    kind: str | None = None
    mean: float
    cumulative: float
    worst_tenth: float


class BatteryUse(_Part):
    """Batteries of a kind of device: those that ran empty, ``client`` first, and the least part left."""

    clients: int
    empty: int
    left: float
    client: int
    seconds: float | None = None


class Absent(_Part):
    """Clients that never took part: never available, or never chosen, if chance leaves nobody out."""

    away: int
    unselected: int


class SeedResult(Figures):
    """One method's run with one seed.

    Its other attributes are the figures of :data:`~edgefl.record.figures.QUANTITIES`: ``joules``, ``bytes.down``.
    ``transfers`` are missing if transfers cannot break, ``blocks`` if the method always sends the whole model.
    """

    seed: int
    stop: Stop
    accuracy: Values
    metric: MetricResult
    seconds: float
    rounds: int
    flops: float
    joules: float
    bytes: Figures
    communication: Figures
    transfers: Figures | None = None
    targets: tuple[TargetResult, ...] = ()
    budgets: tuple[BudgetResult, ...] = ()
    ensemble: Values | None = None  # of the temporal ensemble, the moving average of the global models
    blocks: Figures | None = None
    batteries: dict[str, BatteryUse] | None = None  # by device
    absent: Absent | None = None
    breakdown: dict[str, dict[str, dict[str, float]]] | None = None  # grams and euros by_phase and by_client
    privacy: dict[str, Any] | None = None  # what ε is about: its adjacency, δ, accountant and noise
    secure_aggregation: dict[str, Any] | None = None  # what it sent and computed, over the whole run
    clients: ClientResult | None = None
    personalisation: ClientResult | None = None

    @property
    def faulted(self) -> bool:
        return self.stop.reason == "fault"

    @property
    def ended_by_budget(self) -> bool:
        return any(self.stop.reason == each.kind for each in self.budgets)

    @property
    def trained_nothing(self) -> bool:
        """True if no update was ever aggregated, so that the last model is the untrained one."""
        return bool(self.rounds <= self.rounds_without_update)

    def written(self) -> dict[str, Any]:
        """Return the result as JSON data: the keys that were set, in their order."""
        return self.model_dump(mode="json", exclude_unset=True)


class Summary(_Part):
    """The content of ``summary.json``."""

    format: int = Field(default=SCHEMA, alias="schema")
    scenario: str
    edgefl: str
    inputs: dict[str, str]  # digests of the input files, by field of the scenario
    software: dict[str, str]  # versions of the packages on which its results depend, by name
    chosen: tuple[str, ...]
    figures: tuple[dict[str, Any], ...] = ()  # declarations of quantities of the user's
    methods: dict[str, tuple[SeedResult, ...]] = Field(min_length=1)  # a result for each seed, by label

    @property
    def of_this_version(self) -> bool:
        """True if this version of edgefl wrote it, and so would write the same again."""
        return self.edgefl == __version__

    @property
    def has_trained(self) -> bool:
        """False if nothing was trained (``--no-train``)."""
        return any(each.metric.final is not None for results in self.methods.values() for each in results)


def read_summary(path: Path) -> tuple[dict[str, Any], Summary]:
    """Read ``summary.json``, and return it as plain data and with types."""
    name = str(path)
    data = read_json(path)
    found = data.get("schema") if isinstance(data, dict) else None
    if found != SCHEMA:
        again = "simulate its scenario.yaml again, or use the edgefl that wrote it"
        version = data.get("edgefl") if isinstance(data, dict) else None
        if isinstance(version, str) and version != __version__:
            again += f" ({version})"
        raise UserError(f"expected a run of schema {SCHEMA}, found {found!r}; {again}", file=name, field="schema")
    summary = validated(Summary, data, file=name)
    for label, results in summary.methods.items():
        if not results:
            raise UserError("expected at least one seed, found none", file=name, field=f"methods.{label}")
    return data, summary


def read_run(run: Path) -> tuple[dict[str, Any], Summary]:
    """The summary of a finished run, as plain data and with types."""
    path = RunPaths(run).summary
    if not path.is_file():
        hint = f"; it is unfinished: {how_to_continue(run)}" if is_interrupted(run) else ""
        if (run / SWEEP).exists():
            hint = "; it is an unfinished sweep: run its command again"
        found = f"no summary.json{hint}" if run.is_dir() else "no such folder"
        raise UserError(f"expected the folder of a finished run, found {found}", file=str(run))
    return read_summary(path)


def write_summary(
    scenario: str,
    results: Mapping[str, Sequence[SeedResult]],
    path: Path,
    inputs: Mapping[str, str],
    software: Mapping[str, str],
    *,
    figures: Iterable[Any] = (),
) -> None:
    """Write the results of each seed by label; the same give the same bytes. ``figures`` are the user's quantities."""
    own = [{name: value for name, value in each._asdict().items() if isinstance(value, str)} for each in figures]
    facts: dict[str, Any] = {"scenario": scenario, "inputs": dict(sorted(inputs.items())), "software": dict(software)}
    facts |= {"figures": tuple(own)} if own else {}
    methods = {label: tuple(each) for label, each in results.items()}
    summary = Summary(schema=SCHEMA, edgefl=__version__, chosen=tuple(results), methods=methods, **facts)
    data = summary.model_dump(mode="json", by_alias=True, exclude_unset=True)
    write_file(path, json.dumps(data, indent=2, allow_nan=False) + "\n")


def is_summary(path: Path) -> bool:
    """True if a file exists and is a complete summary, not an empty or truncated one."""
    try:
        return isinstance(read_json(path)["methods"], dict)
    except (UserError, KeyError, TypeError):
        return False
