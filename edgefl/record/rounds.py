"""The rows of ``rounds.parquet`` and ``clients.parquet``, and their columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa

from edgefl.record.figures import QUANTITIES, Floats
from edgefl.record.kinds import F64, I32, I64, Column, schema_of


@dataclass(frozen=True, slots=True)
class RoundRow:
    """One round in the results, with its own amounts; what is not known, or not evaluated, is NaN."""

    round: Annotated[int, Column(I32, "", "the round, from 1")]
    seconds: Annotated[float, Column(F64, "s", "virtual time at the round's end")]
    accuracy: Annotated[float, Column(F64, "", "the metric, in [0, 1], if it is the accuracy")]
    accuracy_ema: Annotated[float, Column(F64, "", "metric_ema of the accuracy")]
    accuracy_ensemble: Annotated[float, Column(F64, "", "metric_ensemble of the accuracy")]
    metric: Annotated[float, Column(F64, "", "the task's metric of the round's model; null where it was not evaluated")]
    metric_ema: Annotated[float, Column(F64, "", "0.9 of the last one and 0.1 of the metric")]
    metric_ensemble: Annotated[float, Column(F64, "", "of the moving average of the models so far; null without one")]
    loss: Annotated[float, Column(F64, "", "mean loss of the round's model, such as the cross-entropy")]
    critical_client: Annotated[int, Column(I32, "", "the client that closed the round; -1 where a deadline did")]
    staleness: Annotated[float, Column(F64, "", "mean age of the aggregated updates, in aggregations")]
    amounts: Mapping[str, Any] = field(default_factory=dict)  # by the names of quantities, which are also attributes

    def __getattr__(self, name: str) -> Any:
        if name != "amounts" and name in self.amounts:  # it is not set yet while a row is unpickled
            return self.amounts[name]
        raise AttributeError(f"a round has no '{name}'")


OWN = schema_of(RoundRow)
"""The columns of ``rounds.parquet`` that are no quantities; every run has them."""

_COLUMNS = [each for each in QUANTITIES.values() if each.column is not None and each.name not in OWN.names]

AMOUNTS = [each for each in _COLUMNS if each.group != "peers"]
"""The quantities of every run's rows."""

OF_PEERS = [each for each in _COLUMNS if each.group == "peers"]
"""Those of runs in which each client has a model of its own, in the rows of these runs only."""

ROUNDS = pa.schema([*OWN, *(each.column for each in AMOUNTS)])
"""Columns of ``rounds.parquet``; those of a user's quantities follow."""


def columns_of(rows: Sequence[RoundRow]) -> dict[str, Floats]:
    """The columns of these rows, NaN where one has no value."""
    names = [*OWN.names, *rows[0].amounts] if rows else ROUNDS.names
    return {name: np.array([getattr(row, name) for row in rows], np.float64) for name in names}


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
