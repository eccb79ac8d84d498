"""The contents of ``summary.json``, written and read by one model; keys of a later edgefl are kept and ignored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, model_validator

from edgefl.durable_file import write_durably
from edgefl.errors import UserError
from edgefl.json_file import read_json
from edgefl.options import Options
from edgefl.record import names
from edgefl.record.kinds import BudgetKind, Lost, StopReason
from edgefl.record.metric import ACCURACY, Better, Metric
from edgefl.validation import validated
from edgefl.version import __version__

SCHEMA = 2

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Value = Amount
"""A value of a metric; none of them is negative."""
Count = Annotated[int, Field(ge=0)]
Number = Annotated[int, Field(ge=0)] | Amount
"""A count or an amount, as it was computed."""


class _Part(Options):
    model_config = ConfigDict(extra="allow")


class Stop(_Part):
    """Why a run ended, and after which round; ``message`` explains an early end."""

    reason: StopReason
    round: Count
    message: str | None = None


class Accuracy(_Part):
    """Accuracies in [0, 1]; ``None`` if nothing was trained, or the task has another metric."""

    final: Share | None = None
    best: Share | None = None
    ema: Share | None = None


class MetricResult(_Part):
    """The task's metric: its name, how to read it, and its values; ``None`` if nothing was trained.

    ``share`` says whether it is a share in [0, 1], ``title`` is its name in sentences.
    """

    name: str
    better: Better
    share: bool
    title: str
    final: Value | None = None
    best: Value | None = None
    ema: Value | None = None

    @property
    def metric(self) -> Metric:
        """What it measures."""
        return Metric(self.name, self.better, self.share, self.title)


class Bytes(_Part):
    """Bytes over the whole run.

    ``wasted`` are those of transfers whose work was never aggregated; ``by_fate`` splits them by reason. ``backhaul``
    are those between the server and averaging cells, which the other counts leave out.
    """

    down: Count
    up: Count
    useful: Count
    wasted: Count
    by_fate: dict[Lost, Count] = Field(default_factory=dict)
    backhaul: Count = 0


class Communication(_Part):
    """Transfer seconds on the rounds' critical paths that did, and did not, lengthen them."""

    exposed_seconds: Amount
    hidden_seconds: Amount


class Transfers(_Part):
    """Attempts to transfer something that broke, attempts that followed another, and transfers that failed."""

    breaks: Count
    retries: Count
    failed: Count


class TargetResult(_Part):
    """When a value of the metric was first reached, and what had been spent by then; ``None`` if it never was.

    ``accuracy`` is the value if the metric is the accuracy.
    """

    accuracy: Share | None = None
    metric: str
    value: Value

    @model_validator(mode="before")
    @classmethod
    def _of_accuracy(cls, data: Any) -> Any:
        """Take a target that names no metric for one of accuracy."""
        if isinstance(data, dict) and "metric" not in data and "value" not in data and "accuracy" in data:
            return {**data, "metric": ACCURACY.name, "value": data["accuracy"]}
        return data

    reached: bool
    seconds: Amount | None = None
    bytes: Count | None = None
    rounds: Count | None = None
    flops: Amount | None = None
    joules: Amount | None = None


class BudgetResult(_Part):
    """The metric when a budget was exhausted; ``accuracy`` is the same if the metric is the accuracy."""

    kind: BudgetKind
    limit: Amount
    accuracy: Share | None = None
    metric: Value | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_accuracy(cls, data: Any) -> Any:
        """Take a result that names no metric for one of accuracy."""
        if isinstance(data, dict) and "metric" not in data and "accuracy" in data:
            return {**data, "metric": data["accuracy"]}
        return data


class Blocks(_Part):
    """What a method with partial downlinks sends.

    ``actual`` counts download bytes by the blocks' sizes, ``uniform`` by alpha/M of the model. ``front_age`` is the
    mean number of rounds since a block was last sent, over the blocks that clients train without receiving them;
    ``None`` if there are no such blocks. ``makespan_over_least`` is the ratio of the
    predicted makespans to the shortest possible ones for the same numbers of blocks; ``None`` if the scheduler
    predicts no makespans.
    """

    actual: Number
    uniform: Number
    front_age: Amount | None = None
    makespan_over_least: Amount | None = None


class ClientResult(_Part):
    """The metric on each client's own test data: mean over clients, mean of the worst tenth, and over all samples.

    ``kind`` is how each client personalised the model before, ``None`` if it did not.
    """

    kind: str | None = None
    mean: Value
    cumulative: Value
    worst_tenth: Value


class EnsembleResult(_Part):
    """The metric of the temporal ensemble, the moving average of the global models."""

    final: Value | None = None
    best: Value | None = None


class SeedResult(_Part):
    """One method's run with one seed.

    ``rounds_without_update`` counts the rounds in which no update was aggregated; ``refused`` counts the jobs for
    which a device had too little memory; ``client_bytes`` are the bytes to and from the client with the most traffic.
    ``transfers`` is missing if transfers cannot break. ``ratio_to_optimum`` is the mean of this column of
    ``rounds.parquet`` over the rounds that have a value; it is missing if there are none.
    """

    seed: Count
    stop: Stop
    accuracy: Accuracy
    metric: MetricResult
    seconds: Amount
    rounds: Count
    rounds_without_update: Count
    refused: Count
    flops: Amount
    joules: Amount
    bytes: Bytes
    client_bytes: Count
    communication: Communication
    transfers: Transfers | None = None
    ratio_to_optimum: Amount | None = None
    targets: tuple[TargetResult, ...] = ()
    budgets: tuple[BudgetResult, ...] = ()
    ensemble: EnsembleResult | None = None
    blocks: Blocks | None = None
    clients: ClientResult | None = None
    personalisation: ClientResult | None = None

    @property
    def faulted(self) -> bool:
        """Whether a fault of a part of the method ended the run."""
        return self.stop.reason == "fault"

    @property
    def trained_nothing(self) -> bool:
        """Whether no update was ever aggregated, so that the last model is the untrained one."""
        return self.rounds <= self.rounds_without_update

    def written(self) -> dict[str, Any]:
        """Return the result as JSON data: the keys that were set, in their order."""
        return self.model_dump(mode="json", exclude_unset=True)

    def spent(self, kind: BudgetKind) -> float:
        """Return what the run spent of a kind of budget; bytes are summed over both directions."""
        if kind == "bytes":
            return self.bytes.down + self.bytes.up
        spent: float = getattr(self, kind)
        return spent

    def within(self, budget: BudgetResult) -> float | None:
        """Return the metric at a budget; the final one if the run ended within it."""
        if budget.metric is None and self.spent(budget.kind) <= budget.limit:
            return self.metric.final
        return budget.metric

    @model_validator(mode="before")
    @classmethod
    def _of_accuracy(cls, data: Any) -> Any:
        """Take a run that names no metric for one of accuracy."""
        if isinstance(data, dict) and "metric" not in data and isinstance(data.get("accuracy"), dict):
            return {**data, "metric": {**ACCURACY._asdict(), "title": ACCURACY.word, **data["accuracy"]}}
        return data

    @model_validator(mode="after")
    def _agree(self) -> Self:
        metric = self.metric
        parts = [metric, *filter(None, (self.ensemble, self.clients, self.personalisation))]
        values = [value for part in parts for value in part.model_dump().values() if isinstance(value, float)]
        if metric.share and any(value > 1 for value in values):
            raise ValueError(f"expected shares in [0, 1] of the metric {metric.name}, found {max(values)}")
        for target in self.targets:
            if target.metric != metric.name or target.accuracy != (target.value if metric.metric.is_accuracy else None):
                raise ValueError(
                    f"expected targets of the metric {metric.name}, found {target.accuracy} and {target.value}"
                )
        return self


class Summary(_Part):
    """The content of ``summary.json``.

    Attributes:
        format: the version of this schema.
        scenario: the scenario's name.
        edgefl: the version that wrote it.
        inputs: digests of the input files, by field of the scenario.
        software: versions of the packages on which its results depend, by name.
        chosen: labels of the methods that were run.
        methods: a result for each seed, by label.
    """

    format: int = Field(default=SCHEMA, alias="schema")
    scenario: str
    edgefl: str
    inputs: dict[str, str]
    software: dict[str, str]
    chosen: tuple[str, ...]
    methods: dict[str, tuple[SeedResult, ...]] = Field(min_length=1)

    @property
    def of_this_version(self) -> bool:
        """Whether this version of edgefl wrote it, and so would write the same again."""
        return self.edgefl == __version__


def read_summary(path: Path) -> tuple[dict[str, Any], Summary]:
    """Read ``summary.json``, and return it as plain data and with types.

    Raises:
        UserError: the file cannot be read, is not JSON, has another schema, or does not fit this schema.
    """
    name = str(path)
    data = read_json(path, missing=True)  # a figure that is not finite counts as missing
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
        if not names.is_plain(label):
            raise UserError(
                "expected a method's label, found what cannot name a folder", file=name, field=f"methods.{label}"
            )
    return data, summary


def write_summary(
    scenario: str,
    results: Mapping[str, Sequence[SeedResult]],
    path: Path,
    inputs: Mapping[str, str],
    software: Mapping[str, str],
) -> None:
    """Write the file; the same results give the same bytes.

    Args:
        scenario: the scenario's name.
        results: one for each seed, by label.
        path: the file.
        inputs: digests of the input files, by field of the scenario.
        software: versions of the packages on which the results depend, by name.
    """
    summary = Summary(
        schema=SCHEMA,
        scenario=scenario,
        edgefl=__version__,
        inputs=dict(sorted(inputs.items())),
        software=dict(software),
        chosen=tuple(results),
        methods={label: tuple(each) for label, each in results.items()},
    )
    data = summary.model_dump(mode="json", by_alias=True, exclude_unset=True)
    write_durably(path, json.dumps(data, indent=2, allow_nan=False) + "\n")


def is_summary(path: Path) -> bool:
    """Whether a file exists and is a complete summary, not an empty or truncated one."""
    try:
        return isinstance(read_json(path, missing=True)["methods"], dict)
    except (UserError, KeyError, TypeError):
        return False
