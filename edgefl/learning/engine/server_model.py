"""The server's side: the latest model, the state of its update, and the next model from the clients' deltas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

import torch
from torch import Tensor

from edgefl.learning.engine.job_inputs import Received
from edgefl.learning.engine.wire import Wire
from edgefl.learning.faults import Diverged, blaming
from edgefl.learning.methods.recipe import Method
from edgefl.learning.servers.base import RoundFacts, ServerSide, checked_state, checked_update
from edgefl.learning.servers.mean import mean_delta


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a trained job brings to the server.

    Attributes:
        client: who trained.
        final: the local model θ_k that it returns ``[size]``, as it arrived.
        sent: the server model θ_t that it was to train from ``[size]``.
        samples: n_k, the client's training images.
        steps: H_k, its local steps.
        loss: mean cross-entropy over the last local epoch.
        first_loss: the same over the first.
        drift: squared distance between ``sent`` and what the client started from.
        delta: θ_k - θ_t as it arrived ``[size]``.
        others: what arrived beside it, by the part's name; see ``RoundFacts.uploads``.
    """

    client: int
    final: Tensor
    sent: Tensor
    samples: int
    steps: int
    loss: float
    first_loss: float
    drift: float
    delta: Tensor
    others: Mapping[str, Tensor] = field(default_factory=dict)


_BLOCK = 512
"""Numbers of a difference whose squares are summed in their own precision."""


class ServerModel:
    """The latest model version and how the next one is made.

    Parameters go through the method's server update. Buffers (batch norm's running statistics and counters) are
    averaged with the same weights, as the papers' code does with every other entry of a model's state.

    Args:
        method: whose server it is.
        initial: version 0 ``[size]``.
        parameter_count: numbers of the vector's first half, the parameters.
        clients: N, all clients of the fleet.
        wire: what clients receive of what is sent.
    """

    def __init__(self, method: Method, initial: Tensor, parameter_count: int, clients: int, wire: Wire) -> None:
        self.version = 0
        self.vector = initial
        self._method = method
        self._count = parameter_count
        # Whole blocks: what lies behind a difference stays zero and adds nothing to its squares.
        self._blocks = initial.new_zeros(-(-parameter_count // _BLOCK), _BLOCK)
        self._difference = self._blocks.view(-1)[:parameter_count]
        self._clients = clients
        self._wire = wire
        self._part = f"server update {type(method.server).__name__}"
        with blaming(method.label, 0, self._part):
            begun = method.server.begin(initial[:parameter_count].clone())
            self._state = checked_state(begun, method.server.broadcasts)
        self._received = self._arriving(0, None, self._rate(0))

    @property
    def state(self) -> Mapping[str, Tensor]:
        """The server update's vectors by name, as the last update left them."""
        return self._state

    def resume(self, version: int, vector: Tensor, state: Mapping[str, Tensor], received: Received) -> None:
        """Go on from a version that an earlier process had reached, and what clients received of it."""
        self.version, self.vector, self._state, self._received = version, vector, dict(state), received

    def sent(self) -> Received:
        """What clients receive of the latest version."""
        return self._received

    def update(
        self,
        arrived: Sequence[Outcome],
        round: int,
        factors: Sequence[float] | None = None,
        *,
        mix: Literal["deltas", "models"] = "deltas",
    ) -> None:
        """Make the next version of what ``arrived``, in ascending order of client; of nothing, an equal one.

        Args:
            arrived: the clients' results.
            round: sets the learning rate η_t that the server update may read.
            factors: what each delta is multiplied by; ``None``: 1.
            mix: a delta leads from what the client was sent (``deltas``) or from the latest model (``models``).

        Raises:
            Diverged: a client's loss, or the next model, is not finite.
        """
        for outcome in arrived:
            if not isfinite(outcome.loss):
                raise Diverged(self._method.label, round, f"the loss of client {outcome.client}")
        if arrived:
            before = ServerSide(self.vector[: self._count], self._state)
            self.vector = self._next(arrived, round, factors, mix)
            if not _finite(self.vector):
                raise Diverged(self._method.label, round, "the server model")
            self._received = self._arriving(self.version + 1, before, self._rate(round))
        self.version += 1

    def _arriving(self, version: int, before: ServerSide | None, lr: float) -> Received:
        """What clients receive of the model ``version``, which ``vector`` and the server state are now."""
        server, wire = self._method.server, self._wire
        if wire.exact_down:
            return Received(self.vector, {name: self._state[name] for name in server.broadcasts})
        parameters, buffers = self.vector[: self._count], self.vector[self._count :]

        def arriving(part: str, vector: Tensor, *, age: int = 0) -> Tensor:
            return wire.down(part, vector, version - age)

        with blaming(self._method.label, version, self._part):
            told = server.received(ServerSide(parameters, self._state), before, lr, arriving)
            checked_update((told.parameters, told.state), parameters, server.broadcasts)
        return Received(torch.cat([told.parameters, buffers]), told.state)

    def _rate(self, round: int) -> float:
        return self._method.local.lr * self._method.local.lr_decay**round

    def _next(
        self,
        arrived: Sequence[Outcome],
        round: int,
        factors: Sequence[float] | None,
        mix: Literal["deltas", "models"],
    ) -> Tensor:
        count = self._count
        deltas = _stacked([each.delta if mix == "deltas" else each.final - self.vector for each in arrived])
        uploads = {part: torch.stack([each.others[part] for each in arrived]) for part in arrived[0].others}
        if factors is not None:
            shares = deltas.new_tensor(list(factors)).unsqueeze(1)
            deltas *= shares
            uploads = {part: each * shares for part, each in uploads.items()}
        weights = deltas.new_tensor(self._weights([outcome.samples for outcome in arrived]))
        steps = deltas.new_tensor([outcome.steps for outcome in arrived])
        facts = RoundFacts(self._rate(round), self._clients, steps, uploads)
        server, before = self._method.server, self.vector[:count]
        # Copies: clients, checkpoints and other methods may still read the model and the state that it is given.
        state = {name: vector.clone() for name, vector in self._state.items()}
        with blaming(self._method.label, round, self._part):
            answer = server.update(before.clone(), deltas[:, :count], weights, state, facts)
            parameters, self._state = checked_update(answer, before, server.broadcasts)
        if count == len(self.vector):
            return parameters
        return torch.cat([parameters, self.vector[count:] + mean_delta(deltas[:, count:], weights)])

    def squared_distance(self, vector: Tensor, other: Tensor | None = None) -> float:
        """‖a - b‖² over the parameters; ``other`` is the latest model unless given.

        Buffers stay out: batch norm's counters and variances are not distances in the space of weights.
        """
        other = self.vector if other is None else other
        if vector is other:
            return 0.0
        difference = torch.sub(vector[: self._count], other[: self._count], out=self._difference)
        # Blocks in their own precision, their sum in float64: as exact as the differences, in a third of the time.
        squared = float(torch.linalg.vector_norm(self._blocks, dim=1).double().square().sum())
        # A block's sum may lie beyond float32 where the distance does not (a model on its way to divergence).
        return squared if isfinite(squared) else float(difference.double().square().sum())

    def _weights(self, samples: Sequence[int]) -> list[float]:
        """Shares that sum to 1: equal, or by the images that a pass really uses."""
        counts = [1] * len(samples) if self._method.weighting == "uniform" else [self._used(n) for n in samples]
        return [count / sum(counts) for count in counts]

    def _used(self, samples: int) -> int:
        """n_k, or ⌊n_k/B⌋·B where an incomplete last batch is left out; a client with less than one batch uses it."""
        local = self._method.local
        return (samples // local.batch * local.batch or samples) if local.drop_last else samples


def _stacked(vectors: Sequence[Tensor]) -> Tensor:
    """The vectors as rows of one tensor, which is theirs where they lie in memory as such rows do."""
    first = vectors[0]
    memory, row = first.untyped_storage().data_ptr(), first.nbytes
    if all(
        vector.untyped_storage().data_ptr() == memory and vector.data_ptr() == first.data_ptr() + place * row
        for place, vector in enumerate(vectors)
    ):
        return first.as_strided((len(vectors), len(first)), (len(first), 1))
    return torch.stack(list(vectors))


def _finite(vector: Tensor) -> bool:
    """Whether all numbers are finite; where their sum is, they are, and that is forty times faster to see."""
    return isfinite(float(vector.sum())) or bool(torch.isfinite(vector).all())
