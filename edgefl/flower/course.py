"""The course of an app's run: its threads, its messages, and the rounds into which they fall."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import simpy

from edgefl import limits
from edgefl.errors import EdgeflError, UserError, in_words
from edgefl.flower.baton import AppRaised, Baton
from edgefl.flower.client_work import Clients
from edgefl.flower.exchange import Exchange
from edgefl.flower.messages import Sent, Wire
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
        self.wire = Wire()
        self._round = self._sleeps = 0
        self._label: str | None = None
        self._trained = False
        self._lives: list[Exchange] = []
        self._all: list[Exchange] = []
        self._pulled: list[Exchange] = []
        self._active: list[Exchange] = []
        self._queues: defaultdict[int, deque[Exchange]] = defaultdict(deque)
        self._busy: set[int] = set()
        self._dispatches: Counter[int] = Counter()

    def run(self) -> Generator[simpy.Event, object, None]:
        """Run the app to its end."""
        world = self._world
        world.round_begins(0, ())
        self._baton.start("ServerApp", self._main)
        try:
            yield from self._baton.play()
        except AppRaised as raised:
            error = raised.error
            if isinstance(error, EdgeflError | KeyboardInterrupt):
                raise error from error.__cause__
            raise PartFault(world.setup.label, self._round, "the ServerApp", in_words(error)) from error
        if self._lives and not world.stopped.triggered:
            self._close()
        world.stop("rounds")

    def break_off(self) -> None:
        """The run ends: stop the app's threads, and abort the messages in progress."""
        self._baton.stop()
        for exchange in list(self._active):
            exchange.drop("unfinished")

    # Calls from the grid, in the world's thread

    def push(self, messages: Sequence[tuple[int, Any, Sent]]) -> list[Exchange]:
        """Send messages together; training messages may begin a round. Idle nodes begin when all are sent.

        Args:
            messages: client, message and what it is on the wire; nothing else refers to the message.
        """
        training = [message for _, message, _ in messages if _trains(message)]
        if training:
            label = _label(training[0])
            outstanding = any(not (each.pulled or each.given_up) and _trains(each.message) for each in self._lives)
            if (not outstanding) if label is None else label != self._label:
                self._begin_round(label)
        if self._world.stopped.triggered:
            self._baton.end()
            return []
        exchanges = [self._queued(*each) for each in messages]
        if exchanges:
            clients = [each.client for each in exchanges]
            self._world.decided(self._round, "selection", READS, clients=sorted(set(clients)))
            for client in clients:
                self._next(client)
        return exchanges

    def _queued(self, client: int, message: Any, sent: Sent) -> Exchange:
        dispatch = self._dispatches[client]
        self._dispatches[client] += 1
        exchange = Exchange(
            self._world,
            self._clients,
            self.wire,
            client=client,
            round=self._round,
            dispatch=dispatch,
            message=message,
            sent=sent,
            on_left=self._left,
        )
        self._lives.append(exchange)
        self._all.append(exchange)
        self._active.append(exchange)
        self._queues[client].append(exchange)
        return exchange

    def pulled(self, exchanges: Sequence[Exchange]) -> None:
        """The app gets the replies of exchanges."""
        for exchange in exchanges:
            exchange.pulled = True
            if exchange.useful:
                if exchange.round == self._round:
                    self._pulled.append(exchange)
                else:
                    exchange.lose("late")

    # Nodes

    def sleep(self, seconds: float) -> None:
        """Let time pass; called in the app's thread.

        Raises:
            UserError: the app has only slept for too often.
        """
        self._sleeps = 0 if self._active else self._sleeps + 1
        if self._sleeps > limits.SLEEPS_WITHOUT_MESSAGE:
            self._baton.fail(
                UserError(
                    f"the ServerApp has slept {limits.SLEEPS_WITHOUT_MESSAGE} times, until "
                    f"{self._world.now:.6g} s of virtual time, while no message was in progress, and seems to "
                    "wait for something that does not happen; budgets.seconds ends such a run without an error",
                    field="flower.app",
                )
            )
        self._baton.wait(self._world.env.timeout(seconds))

    def wait_for_nodes(self, seconds: float) -> None:
        """Let time pass because the app wants more nodes; called in the app's thread.

        Raises:
            UserError: there will never be more.
        """
        presence = self._world.presence
        if not self._active and presence.next_arrival() == np.inf:
            there = np.count_nonzero(presence.available())
            self._baton.fail(
                UserError(
                    f"the app waits for more nodes than will ever be available: {there} of {self._world.setup.clients} "
                    "are there; change its number of nodes, or data.clients",
                    field="flower.app",
                )
            )
        self._baton.wait(self._world.env.timeout(seconds))

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
                return
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


def _trains(message: Any) -> bool:
    return message.metadata.message_type.partition(".")[0] == "train"  # type: ignore[no-any-return]


def _label(message: Any) -> str | None:
    """What the app calls the round of a message."""
    if message.metadata.group_id:
        return f"group {message.metadata.group_id}"
    for record in message.content.config_records.values():
        if "server-round" in record:
            return f"round {record['server-round']}"
    return None
