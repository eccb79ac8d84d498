"""The options of a run's budgets."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from edgefl.options import Options
from edgefl.record.kinds import BUDGETS, BudgetKind
from edgefl.units import Bytes, Flops, Joules, Seconds


class _Spec(Options):
    model_config = ConfigDict(allow_inf_nan=False)


class BudgetSpec(_Spec):
    """Limits on what a run may spend; a kind that is missing or null is not limited.

    >>> BudgetSpec(seconds="2 min", bytes="1 GB").limits()
    {'seconds': 120.0, 'bytes': 1000000000.0}
    """

    seconds: Annotated[Seconds, Field(gt=0)] | None = Field(default=None, description="virtual seconds")
    bytes: Annotated[Bytes, Field(gt=0)] | None = Field(
        default=None, description="bytes of all clients together, down and up"
    )
    client_bytes: Annotated[Bytes, Field(gt=0)] | None = Field(
        default=None, description="bytes that any one client receives and sends"
    )
    flops: Annotated[Flops, Field(gt=0)] | None = Field(default=None, description="FLOPs of all clients' training")
    joules: Annotated[Joules, Field(gt=0)] | None = Field(default=None, description="joules drawn by all clients")

    def limits(self) -> dict[BudgetKind, float]:
        """Each limited kind with its limit, in the order of the fields."""
        return {kind: limit for kind in BUDGETS if (limit := getattr(self, kind)) is not None}
