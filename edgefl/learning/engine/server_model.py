"""The server's side: the latest model, the state of its update, and the next model from the clients' deltas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

import torch
from torch import Tensor

from edgefl.learning.engine.job_inputs import Received
from edgefl.learning.faults import Diverged
from edgefl.learning.methods.recipe import Method
from edgefl.learning.servers.base import RoundFacts
from edgefl.learning.servers.mean import mean_delta


class ServerModel:
    """The latest model version and how the next one is made.

    Parameters go through the method's server update. Buffers (batch norm's running statistics and counters) are
    averaged with the same weights, as the papers' code does with every other entry of a model's state.

    Args:
        method: whose server it is.
        initial: version 0 ``[size]``.
        parameter_count: numbers of the vector's first half, the parameters.
        clients: N, all clients of the fleet.
    """

    def __init__(self, method: Method, initial: Tensor, parameter_count: int, clients: int) -> None:
        self.version = 0
        self.vector = initial
        self._method = method
        self._count = parameter_count
        self._clients = clients
        self._state = method.server.begin(initial[:parameter_count].clone())

    def sent(self) -> Received:
        """What clients are sent of the latest version."""
        return Received(self.vector, {name: self._state[name] for name in self._method.server.broadcasts})

    def update(self, deltas: Sequence[Tensor], samples: Sequence[int], steps: Sequence[int], round: int) -> None:
        """Make the next version; without deltas it equals the latest one.

        Args:
            deltas: θ_k - θ_t of each arrived client ``[size]``, in ascending order of client.
            samples: n_k of each.
            steps: H_k of each.
            round: sets η_t.

        Raises:
            Diverged: the next model is not finite.
        """
        if deltas:
            local = self._method.local
            stacked = torch.stack(list(deltas))
            weights = stacked.new_tensor(self._weights(samples))
            facts = RoundFacts(local.lr * local.lr_decay**round, self._clients, stacked.new_tensor(steps))
            parameters, self._state = self._method.server.update(
                self.vector[: self._count], stacked[:, : self._count], weights, self._state, facts
            )
            buffers = self.vector[self._count :] + mean_delta(stacked[:, self._count :], weights)
            self.vector = torch.cat([parameters, buffers])
            if not bool(torch.isfinite(self.vector).all()):
                raise Diverged(self._method.label, round, "the server model")
        self.version += 1

    def check(self, round: int, losses: Mapping[int, float]) -> None:
        """Refuse losses, by client, that are not finite.

        Raises:
            Diverged: it names the first such client.
        """
        for client, loss in losses.items():
            if not isfinite(loss):
                raise Diverged(self._method.label, round, f"the loss of client {client}")

    def squared_distance(self, vector: Tensor, other: Tensor | None = None) -> float:
        """‖a - b‖² over the parameters, in float64; ``other`` is the latest model unless given.

        Buffers stay out: batch norm's counters and variances are not distances in the space of weights.
        """
        other = self.vector if other is None else other
        if vector is other:
            return 0.0
        difference = vector[: self._count].double() - other[: self._count].double()
        return float(difference.square().sum())

    def _weights(self, samples: Sequence[int]) -> list[float]:
        """Shares that sum to 1: equal, or by the images that a pass really uses."""
        counts = [1] * len(samples) if self._method.weighting == "uniform" else [self._used(n) for n in samples]
        return [count / sum(counts) for count in counts]

    def _used(self, samples: int) -> int:
        """n_k, or ⌊n_k/B⌋·B where an incomplete last batch is left out; a client with less than one batch uses it."""
        local = self._method.local
        return (samples // local.batch * local.batch or samples) if local.drop_last else samples
