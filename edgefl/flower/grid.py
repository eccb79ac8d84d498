"""An app's run in the simulated world: its messages, the rounds into which they fall, and the ``Grid`` that it gets."""

import math
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import simpy

from edgefl.errors import EdgeflError, UserError
from edgefl.flower.client_work import Clients
from edgefl.flower.exchange import Exchange
from edgefl.flower.messages import Metrics, Sent, Wire, copied_message, node_id_of
from edgefl.flower.thread_scheduler import AppRaised, ThreadScheduler
from edgefl.simulation.participation import Participation
from edgefl.simulation.rounds import UNKNOWN, RoundBook
from edgefl.simulation.world import World
from edgefl.training.faults import PartFault
from edgefl.training.job import Evaluation

MOST_IDLE_SLEEPS = 100_000
"""Sleeps of a ServerApp in a row while no message is in progress; a day in steps of a second has 86,400."""

READS = frozenset({"app"})
"""What an app's decisions depend on."""


class AppBook(RoundBook):
    """Ends the rounds of an app, which has its own metrics."""

    def __init__(self, world: World, metrics: Metrics) -> None:
        super().__init__(world)
        self._metrics = metrics

    def evaluate(self, version: int) -> Evaluation:
        """Log the app's accuracy, if it has computed one in this round."""
        return UNKNOWN if self._metrics.evaluation() is None else super().evaluate(version)

    def evaluate_last(self) -> Evaluation:
        """The last evaluation; an app cannot be asked for another one."""
        return self.latest

    def pass_feedback(self, round: int, arrived: Sequence[Participation]) -> None:
        """An app has no scheduler that could learn."""


class AppRun:
    """What happens in an app's run.

    A round begins with a push of training messages, if none of the last round's is without a reply, or if the app calls
    it a new one: by the group of its messages, or by ``server-round`` in their content.
    """

    def __init__(
        self,
        world: World,
        book: AppBook,
        *,
        clients: Clients,
        metrics: Metrics,
        main: Callable[[], object],
        error_in_words: Callable[[BaseException], str],
    ) -> None:
        self.env, self.threads, self.wire = world.env, ThreadScheduler(world.env), Wire()
        self._world, self._book, self._clients = world, book, clients
        self._metrics, self._main, self._error_in_words = metrics, main, error_in_words
        self._round = self._sleeps = 0
        self._label: str | None = None
        self._trained = False
        self._all: list[Exchange] = []  # of this round, and those of earlier ones that were active when it began
        self._pulled: list[Exchange] = []
        self._active: list[Exchange] = []
        self._queues: defaultdict[int, deque[Exchange]] = defaultdict(deque)  # each node handles the first one

    def run(self) -> Generator[simpy.Event, object, None]:
        world = self._world
        world.round_begins(0, ())
        self.threads.start("ServerApp", self._main)
        try:
            yield from self.threads.play()
            if self._present() and not world.stopped.triggered:
                self._close()
        except AppRaised as raised:
            error = raised.error
        except UserError as raised:
            error = raised
        else:
            world.accounts.stop("rounds")
            return
        if isinstance(error, UserError):
            raise PartFault(world.setup.label, self._round, "the app", str(error)) from error
        if isinstance(error, EdgeflError | KeyboardInterrupt):
            raise error from error.__cause__
        raise PartFault(world.setup.label, self._round, "the ServerApp", self._error_in_words(error)) from error

    def break_off(self) -> None:
        """The run ends: stop the app's threads, and abort the messages in progress."""
        self.threads.stop()
        for exchange in list(self._active):
            exchange.drop("unfinished")

    # Called in the world's thread

    def push(self, messages: Sequence[tuple[int, Any, Sent]]) -> list[Exchange]:
        """Send messages, to which nothing else may refer, together, before nodes begin; training may begin a round."""
        training = [message for _, message, _ in messages if _trains(message)]
        if training:
            label = _label(training[0])
            outstanding = any(not (each.pulled or each.given_up) and _trains(each.message) for each in self._present())
            begins = not outstanding if label is None else label != self._label
            self._label = label or self._label
            if begins:
                self._begin_round()
        if self._world.stopped.triggered:
            self.threads.end()
            return []
        exchange = partial(Exchange, self._world, self._clients, self.wire, round=self._round, on_left=self._left)
        exchanges = [exchange(client=client, message=message, sent=sent) for client, message, sent in messages]
        self._all += exchanges
        self._active += exchanges
        for each in exchanges:
            self._queues[each.client].append(each)
        if exchanges:
            self._world.decided(self._round, "selection", READS, clients=sorted({each.client for each in exchanges}))
        for each in exchanges:
            if self._queues[each.client][0] is each:
                each.begin()
        return exchanges

    def pulled(self, exchanges: Sequence[Exchange]) -> None:
        for exchange in exchanges:
            exchange.pulled = True
            if exchange.useful:
                if exchange.round == self._round:
                    self._pulled.append(exchange)
                else:
                    exchange.lose("late")

    # Called in the app's thread

    def sleep(self, seconds: float) -> None:
        """Let time pass; UserError if the app has only slept for too often."""
        self._sleeps = 0 if self._active else self._sleeps + 1
        if self._sleeps > MOST_IDLE_SLEEPS:
            self.threads.fail(
                UserError(
                    f"the ServerApp has slept {MOST_IDLE_SLEEPS} times, until "
                    f"{self._world.env.now:.6g} s of virtual time, while no message was in progress, and seems to "
                    "wait for something that does not happen; budgets.seconds ends such a run without an error",
                    field="flower.app",
                )
            )
        self.threads.wait(self.env.timeout(seconds))

    def wait_for_nodes(self, seconds: float) -> None:
        """Let time pass because the app wants more nodes; UserError if there will never be more."""
        presence = self._world.presence
        if not self._active and presence.next_arrival() == np.inf:
            there = np.count_nonzero(presence.available())
            self.threads.fail(
                UserError(
                    f"the app waits for more nodes than will ever be available: {there} of {self._world.setup.clients} "
                    "are there; change its number of nodes, or data.clients",
                    field="flower.app",
                )
            )
        self.threads.wait(self.env.timeout(seconds))

    def _present(self) -> list[Exchange]:
        return [each for each in self._all if each.round == self._round]

    def _left(self, exchange: Exchange) -> None:
        self._active.remove(exchange)
        queue = self._queues[exchange.client]
        queue.popleft()
        if queue:
            queue[0].begin()

    def _begin_round(self) -> None:
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
        participants = [each for each in self._all if each.refused or each.round == self._round]
        self._all = [each for each in self._all if each in self._active and not each.refused]
        self._pulled = []
        self._book.close(self._round, participants, arrived)


class VirtualGrid:
    """Implements ``flwr.serverapp.Grid``, as which ``isinstance`` accepts it."""

    def __init__(self, world: World, app_run: AppRun, run: Any) -> None:
        from flwr.serverapp import Grid

        Grid.register(type(self))
        self._world, self._app_run, self._threads, self._run = world, app_run, app_run.threads, run
        self._clients = {node_id_of(client): client for client in range(world.setup.clients)}
        self._nodes = list(self._clients)
        self._exchanges: dict[str, Exchange] = {}  # those whose replies the app does not have
        self._pushed = 0
        self._unanswered: list[Exchange] = []
        self._looked_at = -1.0

    def set_run(self, run: Any) -> None:
        self._run = run

    @property
    def run(self) -> Any:
        return self._run

    def create_message(
        self, content: Any, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Any:
        from flwr.app import Message

        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        """The nodes whose devices are available now."""
        if self._threads.holds():
            there = self._world.presence.available()
            self._nodes = [node for node, client in self._clients.items() if there[client]]
        return list(self._nodes)

    def get_nodes(self) -> list[Any]:
        """The same nodes as Flower's ``NodeInfo``."""
        from flwr.proto.node_pb2 import NodeInfo

        return [NodeInfo(node_id=node) for node in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        """Send messages; each node handles one message after another."""
        self._check_thread("push_messages")
        batch = list(messages)
        for message in batch:
            if message.metadata.dst_node_id not in self._clients:
                raise ValueError(f"no node has the id {message.metadata.dst_node_id}")
        ids = [f"{self._pushed + index:064x}" for index in range(len(batch))]
        self._pushed += len(batch)
        sent, wire = [], self._app_run.wire
        for number, message in zip(ids, batch, strict=True):
            message.metadata.__dict__["_message_id"] = number
            # A node gets a copy, as over a network: neither side sees what the other one changes later.
            own = copied_message(message)
            sent.append((self._clients[message.metadata.dst_node_id], own, wire.sent(own, message.content)))
        wire.forget()
        exchanges = self._threads.in_world(lambda: self._app_run.push(sent))
        self._exchanges |= zip(ids, exchanges, strict=True)
        self._unanswered += exchanges
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        """The replies that have arrived; the second call in vain at an instant waits for the next reply to any."""
        self._check_thread("pull_messages")
        exchanges = [each for each in map(self._of, message_ids) if each is not None]
        found = self._pull(exchanges)
        expected = self._unanswered and not all(each.pulled for each in exchanges)
        if not found and expected and self._looked_at == self._world.env.now:
            self._threads.wait(self._world.env.any_of([each.replied for each in self._unanswered]))
            found = self._pull(exchanges)
        self._looked_at = self._world.env.now
        return found

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        """Send messages, and return when all replies are there or at the time-out."""
        if timeout is not None and math.isnan(timeout):
            raise ValueError("expected a number of seconds as timeout, found nan")
        exchanges = [self._exchanges[each] for each in self.push_messages(messages)]
        if exchanges:
            complete: simpy.Event = self._world.env.all_of([each.replied for each in exchanges])
            if timeout is not None and timeout < math.inf:
                complete = complete | self._world.env.alarm(max(0.0, timeout))
            self._threads.wait(complete)
        found = self._pull(exchanges)
        for exchange in exchanges:
            if not exchange.pulled:
                exchange.given_up = True
                self._exchanges.pop(exchange.message.metadata.message_id)
        return found

    def _pull(self, exchanges: Iterable[Exchange]) -> list[Any]:
        """The replies that are there and were not pulled before, in the order of their arrival."""
        there = [each for each in exchanges if each.reply is not None and not each.pulled]
        found = sorted(there, key=lambda each: (each.replied_at, each.job.id.client, each.job.id.dispatch))
        self._threads.in_world(lambda: self._app_run.pulled(found))
        self._unanswered = [each for each in self._unanswered if each.reply is None]
        for exchange in found:
            self._exchanges.pop(exchange.message.metadata.message_id)
        return [each.reply for each in found]

    def _of(self, message_id: str) -> Exchange | None:
        """The exchange of a message; None if the app has its reply."""
        if message_id not in self._exchanges and not 0 <= int(message_id, 16) < self._pushed:
            raise ValueError(f"no message with the id {message_id} was sent")
        return self._exchanges.get(message_id)

    def _check_thread(self, call: str) -> None:
        self._threads.check()
        if not self._threads.holds():
            self._threads.fail(
                UserError(
                    f"the ServerApp calls grid.{call} in a thread that it started itself; edgefl runs the threads of "
                    "Flower's own legacy server, and no others: call it in the main thread",
                    field="flower.app",
                )
            )


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
