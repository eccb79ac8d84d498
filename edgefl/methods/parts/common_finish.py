"""Local work to a common finish: each client gets as much work as it can complete by the time that others need."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import Field

from edgefl.options import Component

_ROUNDING = 1e-9
"""Rounding must not remove a step that ends exactly at the common finish."""


class Predicted(NamedTuple):
    """The predicted participation of one client with the whole model, on an undisturbed device."""

    transfer: float  # seconds of its downlink and uplink, t_com
    step: float  # mean seconds of a local step
    epoch: int  # local steps of one pass over its data
    usual: int  # H_k, the local steps that epochs or steps give

    @property
    def seconds(self) -> float:
        return self.transfer + self.usual * self.step


class CommonFinish(Component):
    """The server chooses each client's local steps so that all clients of a cohort finish at about the same time.

    The common finish T is the k-th smallest predicted time of a participation with the usual local steps, with k =
    ⌈``share`` · clients⌉. Client i gets the most units of work that its device completes by then, and at least one:
    max(⌊(T - t_com) / t_unit⌋, 1). With epochs, and one usual epoch, this is E_i of TimelyFL (Zhang et al., CVPR 2023,
    Alg. 2). Clients then take different numbers of steps: FedNova's server update removes the bias of this.
    """

    share: float = Field(
        default=1.0, gt=0, le=1, description="the part of the cohort that finishes with its usual work; 1: the slowest"
    )
    unit: Literal["steps", "epochs"] = Field(default="steps", description="the unit in which work is allotted")
    most: int | None = Field(
        default=None, ge=1, le=1_000_000, description="the most units of work for one client; null: no limit"
    )
    drop_late: bool = Field(
        default=False, description="close the round at the common finish; updates that arrive later are discarded"
    )

    def time(self, cohort: Sequence[Predicted]) -> float:
        """T, the common finish in seconds after the start of the round; infinite if a link in its place is down.

        >>> cohort = [Predicted(1.0, 0.5, 2, 2), Predicted(1.0, 2.0, 2, 2), Predicted(2.0, 1.0, 2, 2)]
        >>> CommonFinish(share=0.5).time(cohort)
        4.0
        """
        return sorted(each.seconds for each in cohort)[math.ceil(self.share * len(cohort) - _ROUNDING) - 1]

    def steps(self, client: Predicted, time: float) -> int:
        """The local steps of a client for the common finish T; the usual ones if T is infinite.

        >>> client = Predicted(transfer=1.0, step=0.5, epoch=2, usual=2)
        >>> CommonFinish().steps(client, 4.6), CommonFinish(unit="epochs").steps(client, 4.6)
        (7, 6)
        """
        if not math.isfinite(time) or not client.step:
            return client.usual
        unit = client.epoch if self.unit == "epochs" else 1
        units = max(1, math.floor((time - client.transfer) / (unit * client.step) + _ROUNDING))
        return unit * (units if self.most is None else min(units, self.most))

    def part(self, client: Predicted, time: float) -> float:
        """α = min(T / (t_unit + t_com), 1): the share of the model that a client trains, in methods that train parts.

        >>> CommonFinish(unit="epochs").part(Predicted(transfer=1.0, step=1.5, epoch=2, usual=2), 2.0)
        0.5
        """
        unit = client.epoch if self.unit == "epochs" else 1
        whole = client.transfer + unit * client.step
        return min(time / whole, 1.0) if math.isfinite(whole) and whole else 1.0
