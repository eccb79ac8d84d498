"""The course of an app's run: its threads, its messages, and the rounds into which they fall."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

import simpy

from edgefl.errors import EdgeflError, in_words
from edgefl.flower.baton import AppRaised, Baton
from edgefl.flower.exchange import Exchange, Post
from edgefl.flower.messages import Letter
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
        return UNKNOWN if self._metrics.evaluation(version) is None else super().evaluate(version)

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
        post: answers messages.
        metrics: those of the present round.
        main: starts the ``ServerApp``.
        error_in_words: describes an error of the ``ServerApp``.
    """

    def __init__(
        self,
        world: World,
        book: AppBook,
        *,
        baton: Baton,
        post: Post,
        metrics: Metrics,
        main: Callable[[], object],
        error_in_words: Callable[[BaseException], str] = in_words,
    ) -> None:
        self._world, self._book, self._baton, self._post = world, book, baton, post
        self._metrics, self._main, self._error_in_words = metrics, main, error_in_words
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

    def run(self) -> Generator[simpy.Event, object, None]:
        """Run the app to its end."""
        world = self._world
        world.round_begins(0, ())
        self._main()
        try:
            yield from self._baton.play()
        except AppRaised as raised:
            error = raised.error
            if isinstance(error, EdgeflError | KeyboardInterrupt):
                raise error from error.__cause__
            raise PartFault(world.setup.label, self._round, "the ServerApp", self._error_in_words(error)) from error
        if self._lives and not world.stopped.triggered:
            self._close()
        world.stop("rounds")

    def break_off(self) -> None:
        """The run ends: stop the app's threads, and abort the messages in progress."""
        self._baton.stop()
        for exchange in list(self._active):
            exchange.drop("unfinished")

    # Calls of the app, in the world's thread

    @property
    def idle(self) -> bool:
        """Whether no message is in progress."""
        return not self._active

    def starts_round(self, messages: Sequence[Any]) -> bool:
        """Whether messages that the app sends together begin a round."""
        training = [message for message in messages if _trains(message)]
        if not training:
            return False
        label, before = _label(training[0]), self._label
        if label is None:
            return not any(not (each.pulled or each.given_up) and _trains(each.message) for each in self._lives)
        self._label = label
        return label != before

    def log(self, what: str, **facts: object) -> None:
        """Log what the app decides; see :class:`~edgefl.flower.calls.Calls`."""
        self._world.decided(self._round, what, READS, thread=self._baton.current, **facts)

    def push(self, letters: Sequence[Letter]) -> list[Exchange]:
        """Send messages together. Idle nodes begin when all are sent."""
        exchanges = [self._queued(each) for each in letters]
        if exchanges:
            rows = [
                [each.client, {part.name: part.bytes for part in each.sent.parts}, each.seconds_to_live]
                for each in letters
            ]
            self.log("selection", clients=sorted({each.client for each in letters}), messages=rows)
            for each in letters:
                self._next(each.client)
        return exchanges

    def _queued(self, letter: Letter) -> Exchange:
        client = letter.client
        dispatch = self._dispatches[client]
        self._dispatches[client] += 1
        exchange = Exchange(
            self._world,
            self._post,
            round=self._round,
            dispatch=dispatch,
            letter=letter,
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

    def _next(self, client: int) -> None:
        if client not in self._busy and self._queues[client]:
            self._busy.add(client)
            self._world.env.process(self._queues[client].popleft().live())

    def _left(self, exchange: Exchange) -> None:
        self._active.remove(exchange)
        self._busy.discard(exchange.client)
        self._next(exchange.client)

    # Rounds

    def begin_round(self) -> None:
        """The app sends training messages of a new round."""
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
