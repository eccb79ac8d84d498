"""The rows of ``rounds.parquet`` and ``clients.parquet``, and their columns."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from edgefl.record.kinds import column


@dataclass(frozen=True, slots=True)
class RoundRow:
    """One round in the results; amounts are those of this round only. :data:`ROUNDS` gives their meaning.

    A figure that is not known, or a metric of a model that was not evaluated, is NaN.
    """

    round: int
    seconds: float
    accuracy: float
    accuracy_ema: float
    accuracy_ensemble: float
    metric: float
    metric_ema: float
    metric_ensemble: float
    loss: float
    bytes_down: int
    bytes_up: int
    flops: float
    joules: float
    participants: int
    aggregated: int
    refused: int
    exposed_seconds: float
    hidden_seconds: float
    critical_client: int
    blocks_actual: int
    blocks_uniform: int
    staleness: float
    ratio_to_optimum: float = math.nan


ROUNDS = pa.schema(
    [
        column("round", pa.int32(), "", "the round, from 1"),
        column("seconds", pa.float64(), "s", "virtual time at the round's end"),
        column("accuracy", pa.float64(), "", "the metric, in [0, 1], if it is the accuracy"),
        column("accuracy_ema", pa.float64(), "", "metric_ema of the accuracy"),
        column("accuracy_ensemble", pa.float64(), "", "metric_ensemble of the accuracy"),
        column("metric", pa.float64(), "", "the task's metric of the round's model; null where it was not evaluated"),
        column("metric_ema", pa.float64(), "", "0.9 of the last one and 0.1 of the metric"),
        column("metric_ensemble", pa.float64(), "", "of the moving average of the models so far; null without one"),
        column("loss", pa.float64(), "", "mean loss of the round's model, such as the cross-entropy"),
        column("bytes_down", pa.int64(), "B", "delivered to clients during the round"),
        column("bytes_up", pa.int64(), "B", "delivered to the server during the round"),
        column("flops", pa.float64(), "FLOP", "training FLOPs during the round"),
        column("joules", pa.float64(), "J", "drawn by the devices during the round"),
        column("participants", pa.int32(), "", "clients that took part; not those that left before it began"),
        column("aggregated", pa.int32(), "", "clients whose update went into the model"),
        column("refused", pa.int32(), "", "clients whose memory did not hold the job"),
        column("exposed_seconds", pa.float64(), "s", "transfers of the critical path that lengthened the round"),
        column("hidden_seconds", pa.float64(), "s", "transfers of the critical path that did not"),
        column("critical_client", pa.int32(), "", "the client that closed the round; -1 where a deadline did"),
        column("blocks_actual", pa.int64(), "B", "model blocks sent to the cohort, by their true size"),
        column("blocks_uniform", pa.int64(), "B", "model blocks sent to the cohort, at 1/M of the model each"),
        column("staleness", pa.float64(), "", "mean age of the aggregated updates, in aggregations"),
        column("ratio_to_optimum", pa.float64(), "", "seconds relative to the least possible ones; null if unknown"),
    ]
)
"""Columns of ``rounds.parquet``, the fields of :class:`RoundRow`."""


class ClientRow(NamedTuple):
    """One client; a metric is NaN or ``None`` where there is none."""

    client: int
    samples: int
    tested: int
    metric: float
    metric_personalised: float | None
    accuracy: float | None
    accuracy_personalised: float | None


CLIENTS = pa.schema(
    [
        column("client", pa.int32(), "", "the client's number"),
        column("samples", pa.int64(), "", "training samples of the client"),
        column("tested", pa.int64(), "", "test samples of the client"),
        column("metric", pa.float64(), "", "the task's metric of the final model on them; null where there are none"),
        column("metric_personalised", pa.float64(), "", "after personalisation; null without it"),
        column("accuracy", pa.float64(), "", "the metric, in [0, 1], if it is the accuracy"),
        column("accuracy_personalised", pa.float64(), "", "metric_personalised, if it is the accuracy"),
    ]
)
"""Columns of ``clients.parquet``, the fields of :class:`ClientRow`."""
