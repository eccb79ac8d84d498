"""The server side: the latest model and the state of the server update, and what clients are sent of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

import torch
from torch import Tensor

from edgefl.methods.parts.server import Arrival, Arrivals, RoundFacts, ServerSide, checked_state, checked_update
from edgefl.methods.recipe import Method
from edgefl.models.layout import Layout
from edgefl.training.faults import Diverged, blaming
from edgefl.training.job import JobId, Mixing, PeerMixing
from edgefl.training.job_inputs import Received
from edgefl.training.parts_of_models import PartsOfModel, last_blocks, shares
from edgefl.training.wire import Wire


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The result of a trained job at the server."""

    client: int
    final: Tensor  # the returned local model θ_k [size], as received
    version: int  # the model version v_k that the client was sent, and η of its round
    rate: float
    samples: int  # n_k, the number of the client's training images
    steps: int  # H_k, its local steps
    loss: float  # mean cross-entropy over the last local epoch
    first_loss: float  # the same over the first
    # squared distance between that version and the model that the client started from, without its local part
    drift: float
    delta: Tensor  # θ_k - θ_{v_k} [size], as received
    # other received vectors, by the part's name; see Arrival.uploads
    others: Mapping[str, Tensor] = field(default_factory=dict)
    # the broadcasts of the version, as the client received them
    received: Mapping[str, Tensor] = field(default_factory=dict)
    # the capacity level, or the number of the last blocks if only these are trained, and the round: the part of the
    # model that it trained; the other numbers are those of the version
    part: tuple[int, int] = (0, 0)


class ServerModel:
    """The latest model version, its server state, and both as clients receive them."""

    def __init__(  # noqa: PLR0917  (a server is made of this many things)
        self,
        method: Method,
        initial: Tensor,  # model version 0 [size]
        layout: Layout,
        clients: int,  # N, the number of clients in the fleet
        wire: Wire,
        # the parts of the model that clients train, if they do not train all of it. Each number of the model then
        # becomes the server update of the clients that trained it, and their weights are divided by their sum.
        parts: PartsOfModel | None = None,
    ) -> None:
        self.version = 0
        self.vector = initial
        self._method = method
        self._count = layout.parameter_count
        self._local = layout.local_parameters
        self._clients, self._parts = clients, parts
        self._layout = layout
        self._wire = wire
        self._part = f"server update {type(method.server).__name__}"
        with blaming(method.label, 0, self._part):
            begun = method.server.begin(initial[: self._count].clone())
            self.state: Mapping[str, Tensor] = checked_state(begun, method.server.broadcasts)  # after the last update
        if method.private is not None:
            self.state = {**self.state, **method.private.begin(initial)}
        self.sent = self._arriving(0, None, self._method.local.lr_at(0))

    def resume(self, version: int, vector: Tensor, state: Mapping[str, Tensor], received: Received) -> None:
        self.version, self.vector, self.state, self.sent = version, vector, dict(state), received

    def update(self, arrived: Mapping[JobId, Outcome], round: int, mixing: Mixing | PeerMixing | None = None) -> None:
        """Compute the next version from the results in ``arrived``, in ascending order of client.

        Without results, the next version has the same values. ``round`` sets the learning rate η_t that the server
        update may read.
        """
        assert not isinstance(mixing, PeerMixing)
        for outcome in arrived.values():
            if not isfinite(outcome.loss):
                raise Diverged(self._method.label, round, f"the loss of client {outcome.client}")
        if arrived:
            before = ServerSide(self.vector[: self._count], self.state)
            vector, state = self._next(arrived, round, mixing)
            if not _finite(vector):
                raise Diverged(self._method.label, round, "the server model")
            self.vector, self.state = vector, state
            self.sent = self._arriving(self.version + 1, before, self._method.local.lr_at(round))
        self.version += 1

    def _next(
        self, outcomes: Mapping[JobId, Outcome], round: int, mixing: Mixing | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The next version of the model ``[size]`` and of the server state.

        The method's server update computes the parameters. Buffers (batch norm's running statistics and counters) are
        averaged with the same weights; the papers' code does the same with all other entries of a model's state. So is
        the clients' local part, which only evaluations of the server's model read: it is not sent.
        """
        vector, count, server, arrived = self.vector, self._count, self._method.server, list(outcomes.values())
        deltas = stacked([each.delta for each in arrived])
        of_models = mixing is not None and mixing.of == "models"
        moves = torch.stack([self._move(each) for each in arrived]) if of_models else deltas
        weights = self._weights([each.samples for each in arrived])
        coverage = None
        if self._parts is not None or self._method.objective.trains_last:
            trained = [self._places(*each.part) for each in arrived]
            coverage = shares(trained, deltas.new_tensor(weights), len(vector))
        arrivals = [
            Arrival(
                client=each.client,
                rate=each.rate,
                steps=each.steps,
                weight=weight,
                version=each.version,
                age=self.version - each.version,
                factor=1.0 if mixing is None else mixing.factors[id],
                loss=each.first_loss,
                received=each.received,
                uploads=each.others,
            )
            for (id, each), weight in zip(outcomes.items(), weights, strict=True)
        ]
        whole = Arrivals(arrivals, deltas, moves, coverage)
        facts = RoundFacts(self._method.local.lr_at(round), self._clients, round)
        own: Mapping[str, Tensor] = {}
        if (private := self._method.private) is not None:
            whole, own = private.arrived(whole, [each.samples for each in arrived], self.state, facts, self._wire.seed)
        before, rest = vector[:count], slice(count, None)
        # Copies: clients, checkpoints and other methods may still read the current model and state.
        copies = {name: each.clone() for name, each in self.state.items()}
        with blaming(self._method.label, round, f"server update {type(server).__name__}"):
            answer = server.update(before.clone(), whole.at(slice(count)), copies, facts)
            parameters, state = checked_update(answer, before, server.broadcasts)
            state |= own
        if self._local:
            parameters = parameters.clone()
        for place in self._local:
            parameters[place] = before[place] + whole.at(place).mean()
        if count == len(vector):
            return parameters, state
        return torch.cat([parameters, vector[rest] + whole.at(rest).mean()]), state

    def _places(self, part: int, round: int) -> Tensor:
        return last_blocks(self._layout, part) if self._parts is None else self._parts.places(part, round)

    def _move(self, outcome: Outcome) -> Tensor:
        """The difference from the latest model; 0 in the part that the client did not train."""
        if self._parts is None:
            return outcome.final - self.vector
        own = self._parts.taken(outcome.final, *outcome.part)
        return self._parts.put_back(own, self.vector, *outcome.part) - self.vector

    def _weights(self, samples: Sequence[int]) -> list[float]:
        """Shares that sum to 1: equal, or proportional to the images that a pass uses."""
        local = self._method.local
        if self._method.weighting == "uniform":
            counts = [1] * len(samples)
        else:
            counts = [whole * local.step_samples + rest for whole, rest in map(local.a_pass, samples)]
        return [count / sum(counts) for count in counts]

    def _arriving(self, version: int, before: ServerSide | None, lr: float) -> Received:
        server, wire = self._method.server, self._wire
        if wire.exact_down:
            return Received(self.vector, {name: self.state[name] for name in server.broadcasts})
        parameters, buffers = self.vector[: self._count], self.vector[self._count :]

        def arriving(part: str, vector: Tensor, *, age: int = 0) -> Tensor:
            return wire.down(part, vector, version - age)

        with blaming(self._method.label, version, self._part):
            received = server.received(ServerSide(parameters, self.state), before, lr, arriving)
            checked_update((received.parameters, received.state), parameters, server.broadcasts)
        return Received(torch.cat([received.parameters, buffers]), received.state)


def _finite(vector: Tensor) -> bool:
    """If the sum is finite, all numbers are; checking the sum is forty times faster."""
    return isfinite(float(vector.sum())) or bool(torch.isfinite(vector).all())


def stacked(vectors: Sequence[Tensor]) -> Tensor:
    """Without a copy if they are already adjacent rows in memory."""
    first = vectors[0]
    memory, row = first.untyped_storage().data_ptr(), first.nbytes
    if all(
        vector.untyped_storage().data_ptr() == memory and vector.data_ptr() == first.data_ptr() + place * row
        for place, vector in enumerate(vectors)
    ):
        return first.as_strided((len(vectors), len(first)), (len(first), 1))
    return torch.stack(list(vectors))
