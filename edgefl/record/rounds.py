"""The rows of ``rounds.parquet``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoundRow:
    """One round in the results; amounts are those of this round only, and rounds count from 1.

    Attributes:
        seconds: virtual time at the end of the round.
        accuracy, accuracy_ema, loss: of the model after the round's aggregation; NaN where it was not evaluated.
        accuracy_ensemble: of the moving average of the models so far; NaN without one.
        bytes_down, bytes_up: delivered during the round.
        flops, joules: spent during the round.
        participants: clients that were sent the round's model; ``aggregated``: updates aggregated into the next one.
        refused: clients without enough memory for the job.
        exposed_seconds, hidden_seconds: transfer seconds of the critical path that did, and did not,
            lengthen the round.
        critical_client: the client that closed the round, -1 if the deadline did.
        blocks_actual, blocks_uniform: bytes of the blocks sent to the cohort by true size, and at S/M for each block.
        staleness: mean age of the aggregated updates, in aggregations since the model that each was trained from.
    """

    round: int
    seconds: float
    accuracy: float
    accuracy_ema: float
    accuracy_ensemble: float
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
