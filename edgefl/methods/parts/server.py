"""The base class of server updates, algebra on flat vectors: the next model from the clients' deltas."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol

from torch import Tensor

from edgefl.errors import WrongAnswer, one_line
from edgefl.methods.fits import Need
from edgefl.methods.parts.arrivals import Arrivals, RoundFacts
from edgefl.methods.parts.client_state import ClientState, State
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.objective import Objective
from edgefl.options import Component
from edgefl.registry import Registry, class_of

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
    def registered_name(self) -> str:
        """The name in scenarios, or the class's name."""
        return SERVER_UPDATES.name_of(type(self)) or type(self).__name__

    def objective(self, loss: Objective) -> Objective:
        """The clients' loss with this server update, given the method's loss; FedDyn adds its penalty."""
        return loss

    def client_state(self) -> ClientState | None:
        """The client state of this server update, in addition to the method's; none by default."""
        return None

    def accept(self, options: LocalOptions) -> None:
        """Check the local options; by default, all fit this server update."""

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
        """The next parameters θ_{t+1} and server state, from θ_t ``[parameter_count]`` and the state before.

        ``parameters`` and ``state`` are copies, so the update may write to them, but not to the arrivals.
        """


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
