"""The updates that reached the server, and their mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import NamedTuple

from torch import Tensor, zeros_like

from edgefl.methods.parts.rates import LearningRate, rate_at


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """One update that reached the server, except its vector."""

    client: int  # the client that trained it
    rate: float  # η of its own round, with which all its steps were made
    steps: int  # H_k, its local steps
    weight: float  # w_k, its share in the mean; the shares sum to 1
    version: int = 0  # v_k, the model version that the client was sent
    age: int = 0  # t - v_k, the number of aggregations since its version; 0 in synchronous rounds
    factor: float = 1.0  # s_k, the weight of a stale update; 1 in synchronous rounds
    loss: float = nan  # mean cross-entropy over its first local epoch
    # the broadcasts of its version [parameter_count] by name, as this client received them
    received: Mapping[str, Tensor] = field(default_factory=dict)
    # other vectors that it sent [parameter_count], by the part's name, if a codec rounds them; otherwise they follow
    # from the update
    uploads: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Arrivals:
    """The updates of one aggregation, in ascending order of client."""

    each: Sequence[Arrival]
    deltas: Tensor  # δ_k = θ_k - θ_{v_k} [K, n], the change of the model that the client was sent, never scaled
    moves: Tensor  # what the mean adds to the server's model [K, n]: δ_k or, with mix: models, θ_k - θ_t, not scaled
    # where clients train parts of the model, the sum of the weights of those that trained each number [n]
    coverage: Tensor | None = None

    def __iter__(self) -> Iterator[Arrival]:
        return iter(self.each)

    def __len__(self) -> int:
        return len(self.each)

    def per_client(self, numbers: Iterable[float]) -> Tensor:
        """Numbers as a vector of the deltas' type and device."""
        return self.deltas.new_tensor(list(numbers))

    @property
    def weights(self) -> Tensor:
        """w_k ``[K]``."""
        return self.per_client(each.weight for each in self)

    @property
    def steps(self) -> Tensor:
        """H_k ``[K]``."""
        return self.per_client(each.steps for each in self)

    @property
    def rates(self) -> Tensor:
        """η_k ``[K]``."""
        return self.per_client(each.rate for each in self)

    def scaled(self) -> Iterator[Tensor]:
        """s_k times the move of each client ``[n]``, over the coverage."""
        for each, move in zip(self, self.moves, strict=True):
            scaled = move if each.factor == 1.0 else move * each.factor
            yield scaled if self.coverage is None else scaled / self.coverage

    def mean(self, weights: Tensor | None = None) -> Tensor:
        """Σ_k w_k s_k (move of k) ``[n]``, the change of the server's model; ``weights`` ``[K]`` replace w_k."""
        return weighted_sum(self.scaled(), self.weights if weights is None else weights)

    def mean_gradient(self) -> Tensor:
        """-Σ_k w_k s_k (move of k)/η_k ``[n]``: the mean of the clients' summed gradients."""
        if len({each.rate for each in self}) == 1:
            return -self.mean() / self.each[0].rate
        return -self.mean(self.weights / self.rates)

    def at(self, place: slice) -> Arrivals:
        """The same arrivals with the numbers at ``place`` of their vectors."""
        coverage = None if self.coverage is None else self.coverage[place]
        return Arrivals(self.each, self.deltas[:, place], self.moves[:, place], coverage)


def weighted_sum(vectors: Iterable[Tensor], weights: Tensor) -> Tensor:
    """Σ_k w_k x_k ``[n]``.

    Vectors are added one after the other, in order, so the sum depends neither on threads nor on how a library splits a
    matrix product.

    >>> import torch
    >>> weighted_sum(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), torch.tensor([0.25, 0.75]))
    tensor([2.5000, 5.0000])
    """
    total: Tensor | None = None
    for vector, weight in zip(vectors, weights, strict=True):
        total = zeros_like(vector) if total is None else total
        total.addcmul_(vector, weight)
    assert total is not None
    return total


class RoundFacts(NamedTuple):
    """The properties of an aggregation that a server update may read."""

    lr: float  # η_t
    clients: int  # N, the number of clients in the fleet
    round: int = 0  # t, from 0

    def rate(self, option: LearningRate) -> float:
        """An option that is a rate, in this round."""
        return rate_at(option, self.round)
