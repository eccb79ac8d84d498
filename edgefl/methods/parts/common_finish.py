"""Local work to a common finish: each client gets as much work as it can complete by the time that others need."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import Field

from edgefl.options import Component
from edgefl.units import slack


class Passes(NamedTuple):
    """An amount, such as seconds, of each local step, in the order of the steps: one pass over the data after another.

    A pass consists of ``whole`` batches, and a ``smaller`` one (0 or 1) at its end.

    >>> Passes(batch=2.0, whole=3, rest=1.0, smaller=1).first(5), Passes(2.0, 3, 1.0, 1).within(8.9)
    (9.0, 4)
    """

    batch: float  # of a step with a whole batch
    whole: int
    rest: float = 0.0  # of the step with the smaller batch
    smaller: int = 0

    @property
    def steps(self) -> int:
        """The steps of a pass."""
        return self.whole + self.smaller

    def first(self, steps: float) -> float:
        """The amount of the first so many steps; a step that is only begun counts in proportion."""
        passes, left = divmod(steps, self.steps) if self.steps else (0, 0)
        counts = passes * self.whole + min(left, self.whole), passes * self.smaller + max(left - self.whole, 0)
        return counts[0] * self.batch + counts[1] * self.rest

    def reached(self, amount: float) -> float:
        """The steps, the last one in part, that use up this amount, above 0 a pass; the inverse of :meth:`first`."""
        passes, left = divmod(amount, self.first(self.steps))
        large = min(left / self.batch, self.whole) if self.whole else 0.0
        small = max(0.0, left - large * self.batch) / self.rest if self.smaller and self.rest else 0.0
        return passes * self.steps + large + small

    def within(self, amount: float) -> int:
        """The most steps that need at most this amount, above 0 a pass."""
        return math.floor(self.reached(amount))


class Predicted(NamedTuple):
    """One client's predicted participation; after ``cool_for`` seconds, steps take ``hot`` times as long."""

    transfer: float  # seconds in which it does not train, t_com: of its downlink, its uplink and the framework
    passes: Passes  # seconds of its local steps while it is cool
    usual: int  # H_k, the local steps that epochs or steps give
    cool_for: float = math.inf
    hot: float = 1.0

    @property
    def seconds(self) -> float:
        return self.after(self.usual)

    def after(self, steps: int) -> float:
        """The seconds of a participation with so many steps."""
        cool = self.passes.first(steps)
        return self.transfer + min(cool, self.cool_for) + self.hot * max(0.0, cool - self.cool_for)

    def steps_by(self, time: float) -> int:
        """The most steps of a participation that ends by this time."""
        left = time + slack(time) - self.transfer
        return self.passes.within(min(left, self.cool_for) + max(0.0, left - self.cool_for) / self.hot)


class CommonFinish(Component):
    """The server chooses each client's local steps so that all clients of a cohort finish at about the same time.

    The common finish T is the k-th smallest predicted time of a participation with the usual local steps, with k =
    ⌈``share`` · clients⌉. Client i gets the most units of work that its device completes by then, and at least one:
    max(⌊(T - t_com) / t_unit⌋, 1). With epochs, and one usual epoch, this is E_i of TimelyFL (Zhang et al., CVPR 2023,
    Alg. 2). Clients then take different numbers of steps: FedNova's server update removes the bias of this.
    """

    share: float = Field(1.0, gt=0, le=1, description="the part of the cohort that does its usual work; 1: the slowest")
    unit: Literal["steps", "epochs"] = Field(default="steps", description="the unit in which work is allotted")
    most: int | None = Field(None, ge=1, le=1_000_000, description="the most units of one client; null: no limit")
    drop_late: bool = Field(False, description="close at the common finish, and discard later updates")

    def time(self, cohort: Sequence[Predicted]) -> float:
        """T, the common finish in seconds after the start of the round; infinite if a link in its place is down.

        >>> cohort = [Predicted(1.0, Passes(0.5, 2), 2), Predicted(1.0, Passes(2.0, 2), 2)]
        >>> CommonFinish(share=0.5).time(cohort)
        2.0
        """
        return sorted(each.seconds for each in cohort)[math.ceil(round(self.share * len(cohort), 9)) - 1]

    def steps(self, client: Predicted, time: float) -> int:
        """The local steps of a client for the common finish T; the usual ones if T is infinite.

        >>> client = Predicted(transfer=1.0, passes=Passes(0.5, 2), usual=2)
        >>> CommonFinish().steps(client, 4.6), CommonFinish(unit="epochs").steps(client, 4.6)
        (7, 6)
        """
        if not math.isfinite(time) or not client.passes.first(client.passes.steps):
            return client.usual
        unit = client.passes.steps if self.unit == "epochs" else 1
        units = max(1, client.steps_by(time) // unit)
        return unit * (units if self.most is None else min(units, self.most))

    def part(self, client: Predicted, time: float) -> float:
        """α = min(T / (t_unit + t_com), 1): the share of the model that a client trains, in methods that train parts.

        >>> CommonFinish(unit="epochs").part(Predicted(transfer=1.0, passes=Passes(1.5, 2), usual=2), 2.0)
        0.5
        """
        unit = client.passes.steps if self.unit == "epochs" else 1
        whole = client.after(unit)
        return min(time / whole, 1.0) if math.isfinite(whole) and whole else 1.0
