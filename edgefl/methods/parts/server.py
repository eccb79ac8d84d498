"""The updates that reached the server, their mean, and the base class of server updates, which make the next model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import ClassVar, Literal, NamedTuple, Protocol

from torch import Tensor, zeros_like

from edgefl.errors import WrongAnswer, one_line
from edgefl.methods.fits import Need
from edgefl.methods.parts.client_state import ClientState, State
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.objective import Objective
from edgefl.methods.parts.rates import LearningRate, rate_at
from edgefl.options import Component
from edgefl.registry import Registry, class_of


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

    Vectors are added in order, so the sum depends neither on threads nor on how a library splits a matrix product.

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


Weighting = Literal["uniform", "samples"]
"""Weights of clients in the mean: equal, or by their number of training images n_k."""


class ServerSide(NamedTuple):
    """A model version at the server: its parameters ``[parameter_count]`` and its server state."""

    parameters: Tensor
    state: Mapping[str, Tensor]


class Arriving(Protocol):
    """A vector of the latest version, or of one ``age`` versions before it, as clients receive it."""

    def __call__(self, part: str, parameters: Tensor, /, *, age: int = 0) -> Tensor:
        """The ``parameters`` as clients receive them in the part of that name."""


class ServerUpdate(Component):
    """The computation of the next model from deltas; its fields are its options."""

    needs: ClassVar[frozenset[Need]] = frozenset()
    """What it cannot do without; see :mod:`edgefl.methods.fits`. Broadcasts and a client state imply more of it."""
    broadcasts: ClassVar[tuple[str, ...]] = ()
    """Names of server-state vectors that clients receive in addition to the model (FedADC's ``momentum``)."""
    reads: ClassVar[tuple[str, ...]] = ()
    """Names of the tensors of the clients' optimizers that they send, as :attr:`Arrival.uploads`."""
    default_weighting: ClassVar[Weighting | None] = None
    """Weights of the mean in its paper, used if a scenario chooses it for another method; ``None``: the method's."""

    @property
    def carried_by(self) -> Mapping[str, str | None]:
        """The part of the downlink that contains each broadcast; by default the part of the same name.

        ``None``: clients can compute the vector from the round number. :meth:`received` determines how vectors are
        computed from parts. A method whose downlink lacks one of these parts in any round after the first raises an
        error, so that no vector is sent without being charged.
        """
        return {name: name for name in self.broadcasts}

    @property
    def is_mean(self) -> bool:
        """True if the next model is the mean of the clients' models, which peers can compute without a server."""
        return False

    @property
    def registered_name(self) -> str:
        """The name in scenarios, or the class's name."""
        return SERVER_UPDATES.name_of(type(self)) or type(self).__name__

    def objective(self, loss: Objective) -> Objective:
        """The clients' loss with this server update, given the method's loss; FedDyn adds its penalty."""
        return loss

    def with_clients(self, objective: Objective, options: LocalOptions) -> ServerUpdate:
        """This server update, given the clients' loss and local options; by default it depends on neither."""
        return self

    def client_state(self) -> ClientState | None:
        """The client state of this server update, in addition to the method's; none by default."""
        return None

    def accept_count(self, updates: int, set_by: str, attackers: int) -> None:
        """Check the number of updates of an aggregation, set by ``set_by``, of which so many are of attackers."""

    def begin(self, parameters: Tensor) -> State:
        """The server state before the first round, vectors ``[parameter_count]`` by name."""
        return {}

    def received(self, now: ServerSide, before: ServerSide | None, lr: float, arriving: Arriving) -> ServerSide:
        """The model and broadcasts that clients compute from received parts, if a codec rounds them.

        By default, the model and every broadcast are parts. Override this if clients compute them from other parts, so
        that clients train from values that they can compute. ``arriving`` returns a part as received; ``lr`` is η of
        the round that computed the version ``now`` from ``before``, which is ``None`` for the first version.
        """
        broadcasts = {name: arriving(name, now.state[name]) for name in self.broadcasts}
        return ServerSide(arriving("model", now.parameters), broadcasts)

    @abstractmethod
    def update(self, parameters: Tensor, arrivals: Arrivals, state: State, facts: RoundFacts) -> tuple[Tensor, State]:
        """The next θ_{t+1} and state, from copies of θ_t ``[parameter_count]`` and the state before."""


SERVER_UPDATES: Registry[type[ServerUpdate]] = Registry(
    "server update", package="edgefl.methods", group="edgefl.servers", check=class_of(ServerUpdate)
)


def checked_update(answer: object, before: Tensor, broadcasts: Sequence[str]) -> tuple[Tensor, dict[str, Tensor]]:
    """The parameters and the server state that :meth:`ServerUpdate.update` returned, if they can be used."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise WrongAnswer(f"update returned {one_line(answer)}; expected the next parameters and the server state")
    parameters = answer[0]
    if not isinstance(parameters, Tensor) or _kind(parameters) != _kind(before):
        found = _kind(parameters) if isinstance(parameters, Tensor) else one_line(parameters)
        raise WrongAnswer(f"update returned as the next parameters {found}; expected {_kind(before)}")
    return parameters, checked_state(answer[1], broadcasts)


def checked_state(state: object, broadcasts: Sequence[str]) -> dict[str, Tensor]:
    """A server state that has what clients are to receive."""
    if not isinstance(state, Mapping) or not all(isinstance(each, Tensor) for each in state.values()):
        raise WrongAnswer(f"it returned as the server state {one_line(state)}; expected tensors by name")
    if missing := [name for name in broadcasts if name not in state]:
        raise WrongAnswer(f"it returned a server state without '{missing[0]}', which clients are to receive")
    return dict(state)


def _kind(tensor: Tensor) -> str:
    return f"a tensor of {tensor.dtype} {list(tensor.shape)} on {tensor.device}".replace("torch.", "")
