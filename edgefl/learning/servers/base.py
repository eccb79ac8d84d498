"""What a server update is: how the clients' deltas become the next model, as algebra on flat vectors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple, Protocol

from torch import Tensor

from edgefl.errors import WrongAnswer, one_line
from edgefl.learning.client_state import ClientState
from edgefl.learning.component import Component
from edgefl.learning.objectives.base import Objective
from edgefl.learning.rules.base import LocalOptions
from edgefl.registry import Registry, class_of

Weighting = Literal["uniform", "samples"]
"""How clients count in the mean: all alike, or by their number of training images n_k."""


class RoundFacts(NamedTuple):
    """What a server update may know of the round.

    Attributes:
        lr: η_t.
        clients: N, all clients of the fleet.
        steps: H_k, local steps ``[K]``.
        uploads: what clients sent beside their updates ``[K, parameter_count]``, by the part's name, where a codec
            rounds it; else it follows from the updates.
    """

    lr: float
    clients: int
    steps: Tensor
    uploads: Mapping[str, Tensor] = MappingProxyType({})


class ServerSide(NamedTuple):
    """A model version at the server: its parameters ``[parameter_count]`` and the server state that goes with it."""

    parameters: Tensor
    state: Mapping[str, Tensor]


class Arriving(Protocol):
    """What arrives of a vector of the latest version, or of one ``age`` versions before it."""

    def __call__(self, part: str, parameters: Tensor, /, *, age: int = 0) -> Tensor:
        """``parameters`` as clients receive them in the part of that name."""


class ServerUpdate(Component):
    """How deltas become the next model; its fields are its options."""

    broadcasts: ClassVar[tuple[str, ...]] = ()
    """Names of server-state vectors that clients receive beside the model (FedADC's ``momentum``)."""
    default_weighting: ClassVar[Weighting | None] = None
    """Weights of the mean that its paper uses, when a scenario picks it for another method; ``None``: the method's."""

    @property
    def carried_by(self) -> Mapping[str, str | None]:
        """The part of the downlink that carries each broadcast; by default the part of its own name.

        ``None``: clients know the vector without being sent it, because it follows from the round's number. What a
        part carries of other vectors is up to :meth:`received`. A method whose downlink lacks one of these parts in any
        round after the first is refused, so that nothing travels without being charged.
        """
        return {name: name for name in self.broadcasts}

    def objective(self, loss: Objective) -> Objective:
        """The clients' loss under this server update, given the method's own; FedDyn adds its penalty."""
        return loss

    def client_state(self) -> ClientState | None:
        """What clients keep for this server update, beside what their method keeps; nothing by default."""
        return None

    def accept(self, options: LocalOptions) -> None:
        """Refuse local options that make no sense with this server update; every option fits by default.

        Raises:
            UserError: an option does not fit; the message says why.
        """

    def begin(self, parameters: Tensor) -> dict[str, Tensor]:
        """The server state before the first round, vectors ``[parameter_count]`` by name."""
        return {}

    def received(self, now: ServerSide, before: ServerSide | None, lr: float, arriving: Arriving) -> ServerSide:
        """What clients make of the parts that they are sent, where a codec rounds them.

        By default the model and every broadcast is a part. A method whose clients work them out from other parts says
        so here, so that what they train from is what they can know.

        Args:
            now: the latest version.
            before: the one before it, ``None`` for the first.
            lr: η of the round that made the latest of the one before.
            arriving: what arrives of a part.
        """
        broadcasts = {name: arriving(name, now.state[name]) for name in self.broadcasts}
        return ServerSide(arriving("model", now.parameters), broadcasts)

    @abstractmethod
    def update(
        self,
        parameters: Tensor,
        deltas: Tensor,
        weights: Tensor,
        state: dict[str, Tensor],
        facts: RoundFacts,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The next parameters and server state.

        All tensors that it is given are its own: what it writes into them, nobody else reads.

        Args:
            parameters: θ_t ``[parameter_count]``.
            deltas: θ_k - θ_t for each arrived client ``[K, parameter_count]``, in ascending order of client.
            weights: shares that sum to 1 ``[K]``.
            state: the server state as the last update left it.
            facts: the round's learning rate, the number of all clients, and local steps.
        """


def checked_update(
    answer: object, parameters: Tensor, broadcasts: Iterable[str] = ()
) -> tuple[Tensor, dict[str, Tensor]]:
    """The parameters and the server state that :meth:`ServerUpdate.update` returned.

    Args:
        answer: what it returned.
        parameters: what it was given, like which the next ones must be.
        broadcasts: which vectors of the state clients receive.

    Raises:
        WrongAnswer: it is no pair of such a tensor and of tensors by name.
    """
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise WrongAnswer(f"update returned {one_line(answer)}; expected the next parameters and the server state")
    _check_like(answer[0], parameters, "update returned as the next parameters")
    return answer[0], checked_state(answer[1], broadcasts)


def checked_state(answer: object, broadcasts: Iterable[str]) -> dict[str, Tensor]:
    """The server state that :meth:`ServerUpdate.begin` or :meth:`ServerUpdate.update` returned.

    Args:
        answer: what it returned.
        broadcasts: which of its vectors clients receive.

    Raises:
        WrongAnswer: it does not hold tensors by name, or lacks a vector that clients receive.
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
    "server update", package="edgefl.learning.servers", group="edgefl.servers", check=class_of(ServerUpdate)
)
"""Every server update by name; ``edgefl.servers`` entry points add to it."""
