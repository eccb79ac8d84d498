"""The base class of server updates: the next model from the clients' deltas, as algebra on flat vectors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple, Protocol

from torch import Tensor

from edgefl.errors import WrongAnswer, one_line
from edgefl.methods.fits import Need
from edgefl.methods.parts.client_state import ClientState
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.objective import Objective
from edgefl.options import Component
from edgefl.registry import Registry, class_of

Weighting = Literal["uniform", "samples"]
"""Weights of clients in the mean: equal, or by their number of training images n_k."""


class RoundFacts(NamedTuple):
    """The properties of a round that a server update may read.

    Attributes:
        lr: η_t.
        clients: N, the number of clients in the fleet.
        steps: H_k, local steps ``[K]``.
        uploads: other vectors that clients sent ``[K, parameter_count]``, by the part's name, if a codec rounds them;
            otherwise they follow from the updates.
        round: t, from 0.
        losses: mean cross-entropy over the first local epoch of each client ``[K]``.
    """

    lr: float
    clients: int
    steps: Tensor
    uploads: Mapping[str, Tensor] = MappingProxyType({})
    round: int = 0
    losses: Sequence[float] = ()


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

    def objective(self, loss: Objective) -> Objective:
        """The clients' loss with this server update, given the method's loss; FedDyn adds its penalty."""
        return loss

    def client_state(self) -> ClientState | None:
        """The client state of this server update, in addition to the method's; none by default."""
        return None

    def accept(self, options: LocalOptions) -> None:
        """Check the local options; by default, all fit this server update.

        Raises:
            UserError: an option does not fit; the message states the reason.
        """

    def begin(self, parameters: Tensor) -> dict[str, Tensor]:
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
    def update(
        self, parameters: Tensor, deltas: Tensor, weights: Tensor, state: dict[str, Tensor], facts: RoundFacts
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The next parameters and server state.

        All tensors are copies, so the update may write to them.

        Args:
            parameters: θ_t ``[parameter_count]``.
            deltas: θ_k - θ_t of each received upload ``[K, parameter_count]``, in ascending order of client.
            weights: shares that sum to 1 ``[K]``.
            state: the server state after the last update.
            facts: the round's learning rate, the number of clients, and local steps.
        """


def checked_update(
    answer: object, parameters: Tensor, broadcasts: Iterable[str] = ()
) -> tuple[Tensor, dict[str, Tensor]]:
    """Check the parameters and the server state from :meth:`ServerUpdate.update`.

    The next parameters must have the shape, type and device of the previous ones. ``broadcasts`` names the state's
    vectors that clients receive.

    Raises:
        WrongAnswer: it is not a pair of such a tensor and tensors by name.
    """
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise WrongAnswer(f"update returned {one_line(answer)}; expected the next parameters and the server state")
    _check_like(answer[0], parameters, "update returned as the next parameters")
    return answer[0], checked_state(answer[1], broadcasts)


def checked_state(answer: object, broadcasts: Iterable[str]) -> dict[str, Tensor]:
    """Check the server state from :meth:`ServerUpdate.begin` or :meth:`ServerUpdate.update`.

    Raises:
        WrongAnswer: it is not tensors by name, or lacks a vector that clients receive.
    """
    tensors = isinstance(answer, Mapping) and all(isinstance(value, Tensor) for value in answer.values())
    if not isinstance(answer, Mapping) or not tensors:
        raise WrongAnswer(f"it returned as the server state {one_line(answer)}; expected tensors by name")
    for name in broadcasts:
        if name not in answer:
            raise WrongAnswer(f"it returned a server state without '{name}', which clients are to receive")
    return dict(answer)


def _check_like(found: object, wanted: Tensor, what: str) -> None:
    if not isinstance(found, Tensor):
        raise WrongAnswer(f"{what} {one_line(found)}; expected a tensor")
    kinds = [f"{each.dtype} {list(each.shape)} on {each.device}" for each in (found, wanted)]
    if kinds[0] != kinds[1]:
        raise WrongAnswer(f"{what} a tensor of {kinds[0]}; expected {kinds[1]}".replace("torch.", ""))


SERVER_UPDATES: Registry[type[ServerUpdate]] = Registry(
    "server update", package="edgefl.methods", group="edgefl.servers", check=class_of(ServerUpdate)
)


def server_name(server: ServerUpdate) -> str:
    """The registered name of a server update, or its class's name."""
    return SERVER_UPDATES.name_of(type(server)) or type(server).__name__
