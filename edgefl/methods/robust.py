"""Server updates that bound the effect of wrong or malicious updates.

They replace the weighted mean of the clients' updates δ_k; each needs every update on its own. Robust to f attackers
among K clients: the median and the trimmed mean for f < K/2 (share: f/K), Krum for K ≥ 2 f + 3.
"""

import warnings
from abc import abstractmethod

import torch
from pydantic import Field
from torch import Tensor

from edgefl.errors import Note, UserError
from edgefl.methods.parts.client_state import State
from edgefl.methods.parts.server import SERVER_UPDATES, Arrivals, RoundFacts, ServerUpdate, weighted_sum

_AT_ONCE = 1 << 16
"""Numbers of the model that are compared at a time, so that they stay in a processor's cache."""


class _Robust(ServerUpdate):
    needs = frozenset({"each update", "whole model"})

    def update(self, parameters: Tensor, arrivals: Arrivals, state: State, facts: RoundFacts) -> tuple[Tensor, State]:
        return parameters + self.combined(torch.stack(list(arrivals.scaled())), arrivals.weights), state

    @abstractmethod
    def combined(self, updates: Tensor, weights: Tensor) -> Tensor:
        """What is added to the model ``[n]``, from the clients' updates ``[K, n]`` and their weights ``[K]``."""


class _ByNumber(_Robust):
    """The mean of the middle values of each number; weights have no effect."""

    def combined(self, updates: Tensor, weights: Tensor) -> Tensor:
        cut = self.cut(count := len(updates))
        equal = weights.new_full((count - 2 * cut,), 1 / (count - 2 * cut))
        columns = torch.split(updates, _AT_ONCE, dim=1)
        return torch.cat([weighted_sum(each.sort(dim=0).values[cut : count - cut], equal) for each in columns])

    @abstractmethod
    def cut(self, count: int) -> int:
        """How many of so many values are left out at either end."""


@SERVER_UPDATES.register("median")
class Median(_ByNumber):
    """The median of each number; of an even count the mean of the two middle values (Yin et al. 2018)."""

    def cut(self, count: int) -> int:
        return (count - 1) // 2


@SERVER_UPDATES.register("trimmed_mean")
class TrimmedMean(_ByNumber):
    """The mean of each number without its ⌊β K⌋ smallest and largest of K values (Yin et al. 2018)."""

    share: float = Field(default=0.2, ge=0, lt=0.5, description="share β of values that are left out at either end")

    def cut(self, count: int) -> int:
        return int(round(self.share * count, 9))  # 0.29 * 100 is 28.999999999999996

    def accept_count(self, updates: int, set_by: str, attackers: int) -> None:
        if self.share and not self.cut(updates):
            raise UserError(f"{self.share:g} of {set_by} ({updates}) leaves out none", field="server.share")


@SERVER_UPDATES.register("krum")
class Krum(_Robust):
    """The mean of the ``select`` updates nearest to their K - f - 2 nearest ones (Blanchard et al. 2017)."""

    malicious: int = Field(default=0, ge=0, description="f, the number of attackers that a round may have")
    select: int = Field(default=1, ge=1, description="updates that are averaged; 1 is Krum, more is Multi-Krum")

    def accept_count(self, updates: int, set_by: str, attackers: int) -> None:
        if updates < self.malicious + 3:
            found = f"{set_by} is {updates}"
            raise UserError(f"krum needs {self.malicious + 3} updates, and {found}", field="server.malicious")
        if attackers > self.malicious:
            text = f"a round has {attackers} attackers on average, server.malicious of krum is {self.malicious}"
            warnings.warn(text, Note, stacklevel=1)

    def combined(self, updates: Tensor, weights: Tensor) -> Tensor:
        near = max(len(updates) - self.malicious - 2, 1)
        distances = torch.zeros(len(updates), len(updates), dtype=torch.float64, device=updates.device)
        for part in torch.split(updates, _AT_ONCE, dim=1):
            distances += torch.stack([(part - each).square().sum(dim=1, dtype=torch.float64) for each in part])
        # The smallest distance is that to itself.
        scores = distances.sort(dim=1).values[:, 1 : near + 1].sum(dim=1)
        best = scores.argsort(stable=True)[: self.select].sort().values
        return weighted_sum(updates[best], weights.new_full((len(best),), 1 / len(best)))


@SERVER_UPDATES.register("norm_bound")
class NormBound(_Robust):
    """The weighted mean of updates whose norm is reduced to a bound (Sun et al. 2019)."""

    bound: float | None = Field(default=None, gt=0, description="largest norm; null: the median of a round's norms")

    def combined(self, updates: Tensor, weights: Tensor) -> Tensor:
        norms = updates.square().sum(dim=1, dtype=torch.float64).sqrt()
        bound = norms.quantile(0.5) if self.bound is None else self.bound
        factors = (bound / norms.clamp(min=1e-300)).clamp(max=1.0)
        return weighted_sum(updates, weights * factors.to(weights))
