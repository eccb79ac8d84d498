"""A model of each client, and its weighted means with the models of other clients: training without a server."""

from collections.abc import Mapping
from math import isfinite

import torch
from torch import Tensor

from edgefl.training.faults import Diverged
from edgefl.training.job import JobId, Mixing, PeerMixing
from edgefl.training.job_inputs import Received
from edgefl.training.server_model import Outcome


class PeerModels:
    """The models of all peers after the latest round, in place of a :class:`~edgefl.training.server_model.ServerModel`.

    ``vector`` is their mean ``[size]``, ``sent`` has each peer's own model ``[peers, size]``. Peer i has a value v_i
    and a weight w_i, and its model is v_i / w_i; all weights are 1 unless push-sum mixes (Kempe et al. 2003; with
    training, Assran et al. 2019, Alg. 1). ``state`` has both.
    """

    def __init__(self, label: str, initial: Tensor, peers: int) -> None:
        self.version, self._label = 0, label
        self._take(initial.repeat(peers, 1), torch.ones(peers, dtype=torch.float64, device=initial.device))

    def _take(self, values: Tensor, weights: Tensor) -> None:
        self.state: dict[str, Tensor] = {"values": values, "weights": weights}
        alike = bool((weights == 1).all())
        self.sent = Received(values if alike else values / weights.to(values.dtype).unsqueeze(1), {})
        # The first one and the mean difference: the mean of equal models is that model, to the last bit.
        self.vector = values[0].clone()
        for value in values[1:]:
            self.vector.add_(value - values[0], alpha=1 / len(values))

    def resume(self, version: int, vector: Tensor, state: Mapping[str, Tensor], received: Received) -> None:
        self.version, self.vector, self.state, self.sent = version, vector, dict(state), received

    def update(self, arrived: Mapping[JobId, Outcome], round: int, mixing: Mixing | PeerMixing | None) -> None:
        """Mix the models after a round in which the clients of ``arrived`` trained; the others keep theirs."""
        assert isinstance(mixing, PeerMixing)
        for outcome in arrived.values():
            if not isfinite(outcome.loss):
                raise Diverged(self._label, round, f"the loss of client {outcome.client}")
        values, weights = self.state["values"], self.state["weights"]
        trained = values.clone()
        for outcome in arrived.values():
            # Without push-sum the value is the model, which keeps all its bits.
            pushed = float(weights[outcome.client]) != 1
            trained[outcome.client] = values[outcome.client] + outcome.delta if pushed else outcome.final
        mixed, weights = mix(values if mixing.gradient_after else trained, weights, mixing)
        if mixing.gradient_after:
            mixed += trained - values
        if not bool(torch.isfinite(mixed).all()):
            raise Diverged(self._label, round, "the model of a peer")
        self._take(mixed, weights)
        self.version += 1


def mix(values: Tensor, weights: Tensor, mixing: PeerMixing) -> tuple[Tensor, Tensor]:
    """One step of averaging: x_i ← Σ_j w_ij x_j for values ``[peers, size]`` and their push-sum weights ``[peers]``.

    Terms are added one after the other, by peer. If rows sum to 1, x_i + Σ_j w_ij (x_j - x_i) is computed, so that
    peers that agree do not change.
    """
    mixed, shares = torch.empty_like(values), mixing.weights
    for peer, row in enumerate(shares):
        own = values[peer]
        total = own * float(row[peer]) if mixing.push_sum else own.clone()
        for other in (each for each in row.nonzero()[0].tolist() if each != peer):
            total.add_(values[other] if mixing.push_sum else values[other] - own, alpha=float(row[other]))
        mixed[peer] = total
    if mixing.push_sum:
        weights = torch.from_numpy(shares).to(weights) @ weights
    return mixed, weights
