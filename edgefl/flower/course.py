"""The course of an app's run: its threads, its messages, and the rounds into which they fall."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

import simpy

from edgefl.errors import EdgeflError, in_words
from edgefl.flower.baton import AppStopped, Baton
from edgefl.flower.client_work import Clients
from edgefl.flower.exchange import Exchange
from edgefl.flower.messages import Wire
from edgefl.flower.metrics import Metrics
from edgefl.simulation.rounds import UNKNOWN, Life, RoundBook
from edgefl.simulation.world import World
from edgefl.training.faults import PartFault
from edgefl.training.job import Evaluation

READS = frozenset({"app"})
"""What an app's decisions depend on."""


class AppBook(RoundBook):
    """Ends the rounds of an app, which has its own metrics.

    Args:
        world: the run's world.
        metrics: those of the present round.
    """

    def __init__(self, world: World, metrics: Metrics) -> None:
        super().__init__(world)
        self._metrics = metrics

    def evaluate(self, version: int) -> Evaluation:
        """Log the app's accuracy, if it has computed one in this round."""
        return UNKNOWN if self._metrics.evaluation() is None else super().evaluate(version)

    def evaluate_last(self) -> Evaluation:
        """The last evaluation; an app cannot be asked for another one."""
        return self.latest

    def pass_feedback(self, round: int, arrived: Sequence[Life]) -> None:
        """An app has no scheduler that could learn."""


class AppCourse:
    """What happens in an app's run.

    A round begins with a push of training messages, if none of the last round's is without a reply, or if the app calls
    it a new one: by the group of its messages, or by ``server-round`` in their content.

    Args:
        world: the run's world.
        book: ends rounds.
        baton: runs the app's threads.
        clients: execute the ``ClientApp``.
        metrics: those of the present round.
        main: the ``ServerApp``.
    """

    def __init__(
        self,
        world: World,
        book: AppBook,
        *,
        baton: Baton,
        clients: Clients,
        metrics: Metrics,
        main: Callable[[], None],
    ) -> None:
        self._world, self._book, self._baton, self._clients = world, book, baton, clients
        self._metrics, self._main = metrics, main
        self._wire = Wire()
        self._round = 0
        self._label: str | None = None
        self._trained = False
        self._lives: list[Exchange] = []
        self._all: list[Exchange] = []
        self._pulled: list[Exchange] = []
        self._active: list[Exchange] = []
        self._queues: defaultdict[int, deque[Exchange]] = defaultdict(deque)
        self._busy: set[int] = set()
        self._dispatches: Counter[int] = Counter()
        self._picked: list[int] = []

    def run(self) -> Generator[simpy.Event, object, None]:
        """Run the app to its end."""
        world = self._world
        world.round_begins(0, ())
        self._baton.start("ServerApp", self._main)
        try:
            yield from self._baton.play()
        except (EdgeflError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            raise PartFault(world.setup.label, self._round, "the ServerApp", in_words(error)) from error
        if self._lives and not world.stopped.triggered:
            self._close()
        world.stop("rounds")

    def break_off(self) -> None:
        """The run ends: stop the app's threads, and abort the messages in progress."""
        self._baton.stop()
        for exchange in list(self._active):
            exchange.drop("unfinished")

    # Calls from the grid, in the app's thread

    def begin_batch(self, messages: Sequence[Any]) -> None:
        """Messages will be pushed together; training messages may begin a round."""
        training = [each for each in messages if each.metadata.message_type.partition(".")[0] == "train"]
        if training:
            label = _label(training[0])
            outstanding = any(
                not (each.pulled or each.given_up) and each.message.metadata.message_type.startswith("train")
                for each in self._lives
            )
            if (not outstanding) if label is None else label != self._label:
                self._begin_round(label)
        self._picked = []

    def push(self, client: int, message: Any, *, shared: Any) -> Exchange:
        """Send a message to a client's node.

        Args:
            client: the client.
            message: a copy of the message.
            shared: the content that several messages may have in common.
        """
        dispatch = self._dispatches[client]
        self._dispatches[client] += 1
        parts = self._wire.parts(message, shared)
        exchange = Exchange(
            self._world,
            self._clients,
            self._wire,
            client=client,
            round=self._round,
            dispatch=dispatch,
            message=message,
            parts=parts,
            on_left=self._left,
        )
        self._picked.append(client)
        self._lives.append(exchange)
        self._all.append(exchange)
        self._active.append(exchange)
        self._queues[client].append(exchange)
        return exchange

    def batch_pushed(self) -> None:
        """All messages of a batch were pushed: idle nodes begin."""
        self._wire.forget()
        if self._picked:
            self._world.decided(self._round, "selection", READS, clients=sorted(set(self._picked)))
            for client in self._picked:
                self._next(client)
            self._picked = []

    def pulled(self, exchange: Exchange) -> None:
        """The app gets the reply of an exchange."""
        exchange.pulled = True
        if exchange.useful:
            if exchange.round == self._round:
                self._pulled.append(exchange)
            else:
                exchange.lose("late")

    # Nodes

    def _next(self, client: int) -> None:
        if client not in self._busy and self._queues[client]:
            self._busy.add(client)
            self._world.env.process(self._queues[client].popleft().live())

    def _left(self, exchange: Exchange) -> None:
        self._active.remove(exchange)
        self._busy.discard(exchange.client)
        self._next(exchange.client)

    # Rounds

    def _begin_round(self, label: str | None) -> None:
        self._label = label
        if self._trained:
            self._close()
            if self._world.stopped.triggered:
                raise AppStopped
            self._round += 1
            self._world.round_begins(self._round, ())
        self._trained = True
        self._metrics.clear()

    def _close(self) -> None:
        arrived = sorted(self._pulled, key=lambda each: (each.client, each.job.id.dispatch))
        # A refusal belongs to the round in which it happens, which may be a later one than that of its message.
        refused = [each for each in self._all if each.phase == "refused"]
        self._all = [each for each in self._all if each in self._active and each.phase != "refused"]
        lives = [each for each in self._lives if each.phase != "refused"]
        self._lives, self._pulled = [], []
        self._book.close(self._round, [*lives, *refused], arrived)


def _label(message: Any) -> str | None:
    """What the app calls the round of a message."""
    if message.metadata.group_id:
        return f"group {message.metadata.group_id}"
    for record in message.content.config_records.values():
        if "server-round" in record:
            return f"round {record['server-round']}"
    return None
