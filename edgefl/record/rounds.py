"""The rows of ``rounds.parquet`` and ``clients.parquet``, and their columns."""

import math
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from edgefl.record.kinds import F64, I32, I64, Column, schema_of


@dataclass(frozen=True, slots=True)
class RoundRow:
    """One round in the results; amounts are those of this round only.

    A figure that is not known, or a metric of a model that was not evaluated, is NaN.
    """

    round: Annotated[int, Column(I32, "", "the round, from 1")]
    seconds: Annotated[float, Column(F64, "s", "virtual time at the round's end")]
    accuracy: Annotated[float, Column(F64, "", "the metric, in [0, 1], if it is the accuracy")]
    accuracy_ema: Annotated[float, Column(F64, "", "metric_ema of the accuracy")]
    accuracy_ensemble: Annotated[float, Column(F64, "", "metric_ensemble of the accuracy")]
    metric: Annotated[float, Column(F64, "", "the task's metric of the round's model; null where it was not evaluated")]
    metric_ema: Annotated[float, Column(F64, "", "0.9 of the last one and 0.1 of the metric")]
    metric_ensemble: Annotated[float, Column(F64, "", "of the moving average of the models so far; null without one")]
    loss: Annotated[float, Column(F64, "", "mean loss of the round's model, such as the cross-entropy")]
    bytes_down: Annotated[int, Column(I64, "B", "delivered to clients during the round")]
    bytes_up: Annotated[int, Column(I64, "B", "delivered to the server during the round")]
    flops: Annotated[float, Column(F64, "FLOP", "training FLOPs during the round")]
    joules: Annotated[float, Column(F64, "J", "drawn by the devices during the round")]
    participants: Annotated[int, Column(I32, "", "clients that took part; not those that left before it began")]
    aggregated: Annotated[int, Column(I32, "", "clients whose update went into the model")]
    refused: Annotated[int, Column(I32, "", "clients whose memory did not hold the job")]
    exposed_seconds: Annotated[float, Column(F64, "s", "transfers of the critical path that lengthened the round")]
    hidden_seconds: Annotated[float, Column(F64, "s", "transfers of the critical path that did not")]
    critical_client: Annotated[int, Column(I32, "", "the client that closed the round; -1 where a deadline did")]
    blocks_actual: Annotated[int, Column(I64, "B", "model blocks sent to the cohort, by their true size")]
    blocks_uniform: Annotated[int, Column(I64, "B", "model blocks sent to the cohort, at 1/M of the model each")]
    staleness: Annotated[float, Column(F64, "", "mean age of the aggregated updates, in aggregations")]
    ratio_to_optimum: Annotated[
        float, Column(F64, "", "seconds relative to the least possible ones; null if unknown")
    ] = math.nan


ROUNDS = schema_of(RoundRow)
"""Columns of ``rounds.parquet``."""


class ClientRow(NamedTuple):
    """One client; a metric is NaN or ``None`` where there is none."""

    client: Annotated[int, Column(I32, "", "the client's number")]
    samples: Annotated[int, Column(I64, "", "training samples of the client")]
    tested: Annotated[int, Column(I64, "", "test samples of the client")]
    metric: Annotated[float, Column(F64, "", "the task's metric of the final model on them; null where there are none")]
    metric_personalised: Annotated[float | None, Column(F64, "", "after personalisation; null without it")]
    accuracy: Annotated[float | None, Column(F64, "", "the metric, in [0, 1], if it is the accuracy")]
    accuracy_personalised: Annotated[float | None, Column(F64, "", "metric_personalised, if it is the accuracy")]


CLIENTS = schema_of(ClientRow)
"""Columns of ``clients.parquet``."""
