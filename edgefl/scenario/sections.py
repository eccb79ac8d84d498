"""Smaller sections of a scenario: training, evaluation, targets, sweep and published results."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from edgefl.errors import UserError, nearest
from edgefl.fleet import NamedProfile
from edgefl.input_file import InputCode
from edgefl.methods.codecs.choice import Codecs
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.options import Options
from edgefl.record.figures import Quantity, declare
from edgefl.record.metric import Metric
from edgefl.registry import PlugIns, object_of
from edgefl.scenario.components import Bandwidth, Named, Selection
from edgefl.scheduling.bandwidth.base import bandwidth
from edgefl.scheduling.selection.base import selection
from edgefl.simulation.accounts import BudgetSpec
from edgefl.training.engine_spec import EngineChoice, EngineSpec
from edgefl.training.kept_states import EnsembleSpec
from edgefl.units import Euros, Grams, Seconds, TrafficBytes
from edgefl.user_code import UserCode

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SweepMetric = Literal["accuracy", "best", "ema"]

PublishedMetric = Literal[
    "accuracy", "accuracy_best", "accuracy_ema", "accuracy_personalised", "accuracy_gain", "loss",
    "rounds_to", "seconds_to", "bytes_to", "rounds", "seconds", "seconds_a_round", "bytes",
]  # fmt: skip
_OF_CLIENTS = ("accuracy_personalised", "accuracy_gain")
"""Metrics that exist only at the end of a run."""


class TrainingSpec(Options):
    """The number of rounds, the cohort of each round, and a client's local training."""

    rounds: int = Field(
        ge=1, le=10_000_000, description="maximum number of aggregations; a budget may end the run earlier"
    )
    cohort: int = Field(ge=1, description="clients per round, at most data.clients")
    selection: Selection = Field(
        default=Named("uniform", selection("uniform")), description="how the cohort is selected: a kind and its options"
    )
    bandwidth: Bandwidth = Field(
        default=Named("equal", bandwidth("equal")),
        description="how the server divides its bandwidth among transfers: a kind and its options",
    )
    local: LocalOptions = Field(default_factory=LocalOptions, description="a client's local training")
    server: NamedProfile | None = Field(
        default=None,
        description="the server's device, which needs time to aggregate, and to evaluate if `evaluation.on` says so: "
        "the name of a profile, or the path of one; null: no time",
    )
    engine: EngineChoice = Field(default_factory=EngineSpec, description="how jobs are trained: a kind and its options")
    codec: Codecs = Field(default_factory=Codecs, description="how uploads and downloads are encoded")


class EvaluationSpec(Options):
    """When, and on which data, the server's model is evaluated."""

    every: int = Field(default=1, ge=1, description="rounds between evaluations; the last model is always evaluated")
    split: Literal["test", "validation"] = Field(
        default="test", description="test, or the validation part held out of the training data (for tuning)"
    )
    on: Literal["clients", "server", "both"] | None = Field(
        default=None,
        description="who evaluates the round's model as a part of the round, which then takes longer: the server, on "
        "all test samples; clients, each on its own; or one after the other; null: it takes no time",
    )
    share: float = Field(default=1.0, gt=0, le=1, description="part of the available clients that evaluate")
    images: int | None = Field(
        default=None, ge=1, description="samples that each of them evaluates on, of those that `data.test` gives it"
    )
    optimum: bool = Field(
        False, description="compare the seconds of each round with the least possible ones, if all costs are known"
    )
    ensemble: EnsembleSpec | None = Field(
        default=None, description="also evaluate the moving average of the global models; null: no"
    )


FIGURES = PlugIns("figure", "edgefl.figures", object_of(Quantity))
"""The quantities of plug-ins."""


class FigureSpec(Options):
    """A quantity of the user's: what a run spends of something."""

    python: InputCode = Field(description="a Quantity in a file, FILE.py:NAME")


def quantity_of(entry: str | FigureSpec) -> Quantity | None:
    """The quantity, declared; ``None`` if its file may not be executed. A text is the name of a plug-in's."""
    if isinstance(entry, str):
        if entry not in FIGURES:
            raise UserError(f"unknown figure '{entry}'; {nearest(entry, FIGURES.names())}")
        found = FIGURES.load(entry)
    else:
        code = UserCode.of(entry.python)
        if not code.allowed():
            return None
        found = code.load(kind=Quantity)
    if not found.name.isidentifier() or found.source is None or found.total not in ("sum", "max"):
        raise UserError(f"expected a name of letters, a source, and total 'sum' or 'max', found {found!r}")
    return declare(found)


class Budgets(BudgetSpec, extra="allow"):
    """Limits on what a run may spend, also of the quantities of the scenario's ``figures``, in their units."""

    grams: Annotated[Grams, Field(gt=0)] | None = Field(default=None, description="CO2 of all clients, by `prices`")
    euros: Annotated[Euros, Field(gt=0)] | None = Field(default=None, description="cost of all clients, by `prices`")

    __pydantic_extra__: dict[str, Annotated[float, Field(gt=0)] | None]

    def limits(self) -> dict[str, float]:
        own = {name: limit for name, limit in (self.model_extra or {}).items() if limit is not None}
        return super().limits() | own


class TargetSpec(Options):
    """A value of the metric to reach."""

    metric: str = Field(description="the task's metric")
    at_least: Positive | None = Field(default=None, description="the value, if higher values are better")
    at_most: Positive | None = Field(default=None, description="the value, if lower values are better")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("expected either at_least or at_most")
        return self

    @property
    def value(self) -> float:
        return self.at_least or self.at_most or 0.0


Target = Annotated[float, Field(gt=0, le=1)] | TargetSpec


def values_of(targets: Sequence[Target]) -> list[float]:
    """The numbers of targets of both kinds."""
    return [target.value if isinstance(target, TargetSpec) else target for target in targets]


def check_targets(targets: Sequence[Target], metric: Metric) -> None:
    """Raise UserError if a target is of another metric or in the wrong direction."""
    bound = "at_least" if metric.better == "higher" else "at_most"
    for index, target in enumerate(targets):
        field = f"targets.{index}"
        if not isinstance(target, TargetSpec):
            if not metric.is_accuracy:
                raise UserError(
                    f"a number is a share of accuracy, and the task's metric is {metric.name}; expected "
                    f"{{metric: {metric.name}, {bound}: …}}, found {target:g}",
                    field=field,
                )
            continue
        if target.metric != metric.name:
            message = f"expected {metric.name}, the task's metric, found {target.metric}"
            raise UserError(message, field=f"{field}.metric")
        if getattr(target, bound) is None:
            message = f"expected {bound}, because {metric.better} values of {metric.name} are better"
            raise UserError(message, field=field)
        if metric.share and target.value > 1:
            raise UserError(f"expected a share in (0, 1], found {target.value:g}", field=f"{field}.{bound}")


class OptunaSpec(Options):
    """Settings proposed by optuna's tree-structured Parzen estimator from the results of earlier settings."""

    trials: Annotated[int, Field(ge=1)] = Field(description="settings to try for each method")
    together: Annotated[int, Field(ge=1)] = Field(
        default=4, description="settings proposed at a time; part of the search, whatever the number of processors"
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(default=0, description="the proposals' random seed")
    metric: SweepMetric = Field(
        default="accuracy",
        description="accuracy (or the task's metric) of the last model, the best one, or the moving average (ema)",
    )


class RangeSpec(Options):
    """Numbers from low to high."""

    low: float = Field(description="the least value")
    high: float = Field(description="the greatest value")
    log: bool = Field(default=False, description="use a logarithmic scale")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"expected low below high, found {self.low:g} and {self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError(f"expected low above 0 with log, found {self.low:g}")
        return self


class SweepSpec(Options):
    """Values to try: all combinations, or some drawn at random."""

    grid: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(
        default_factory=dict, description="for each dotted path (as in --set) the values to try"
    )
    random: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="number of combinations to try, drawn once for all methods; null: all"
    )
    ranges: dict[str, RangeSpec] = Field(
        default_factory=dict, description="for each dotted path the numbers to try; for optuna"
    )
    optuna: OptunaSpec | None = Field(default=None, description="proposals by optuna; null: the grid itself")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if not self.grid and not self.ranges:
            raise ValueError("expected values to try, in grid or ranges")
        if self.optuna is not None and self.random is not None:
            raise ValueError("optuna proposes settings itself; remove random")
        if self.ranges and self.optuna is None:
            raise ValueError("ranges need a section optuna; expected it, or values in grid")
        return self


class Published(Options):
    """One number of a paper, or a rank if the paper shows an order without numbers.

    >>> Published(method="fedavg", metric="rounds_to", accuracy=0.4, value=428, source="Table 2").value
    428.0
    """

    method: str = Field(
        description="the label of the method here; with `mean_of`, the name of the mean in the comparison"
    )
    mean_of: tuple[str, ...] = Field(default=(), description="labels of the methods whose mean the number is")
    metric: PublishedMetric = Field(
        description="accuracy (of the last model, or at `round`), its best or its moving average, the clients' "
        "accuracy after personalisation or its gain (over all samples); loss; rounds, seconds or bytes (both "
        "directions) of the whole run, or to an `accuracy`; seconds per round"
    )
    value: float | None = Field(default=None, description="the number in base units; accuracies in [0, 1]")
    spread: Annotated[float, Field(ge=0)] | None = Field(default=None, description="the paper's value after ±")
    more_than: bool = Field(default=False, description="the paper states only that it is more than the value (1000+)")
    less_than: bool = Field(default=False, description="the paper states only that it is less than the value")
    rank: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="rank among the methods (1: best) if the paper shows an order without numbers"
    )
    round: Annotated[int, Field(ge=1)] | None = Field(default=None, description="the round; null: the last")
    seconds: Seconds | None = Field(default=None, description="limit on the run's seconds; null: no limit")
    bytes: TrafficBytes | None = Field(default=None, description="limit on bytes in both directions; null: no limit")
    accuracy: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="the accuracy to reach, by target_metric; for rounds_to, seconds_to and bytes_to"
    )
    source: str = Field(min_length=1, description="the paper and its table or figure")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.value is None) == (self.rank is None):
            raise ValueError("expected either value or rank")
        if self.more_than and self.less_than:
            raise ValueError("expected more_than or less_than, not both")
        if self.metric.endswith("_to") != (self.accuracy is not None):
            raise ValueError(f"{self.metric} {'needs' if self.accuracy is None else 'has no'} accuracy")
        if self.metric in _OF_CLIENTS and (self.round, self.seconds, self.bytes) != (None, None, None):
            raise ValueError(f"{self.metric} exists only for the last model; remove round, seconds and bytes")
        return self
