"""The ``Grid`` that an app's ``ServerApp`` gets: it sends messages through the simulated world."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edgefl.errors import UserError
from edgefl.flower.baton import Baton
from edgefl.flower.calls import Calls, finite
from edgefl.flower.course import AppCourse
from edgefl.flower.exchange import Exchange
from edgefl.flower.messages import Letter, Wire, copied_message, node_id_of
from edgefl.flower.virtual_time import date_at
from edgefl.simulation.world import World


class VirtualGrid:
    """Implements ``flwr.serverapp.Grid``; :func:`virtual_grid` makes it a subclass of it.

    Args:
        world: the world of the run.
        baton: says which of the app's threads runs.
        course: the course of the run.
        calls: makes the calls.
        run: Flower's description of the run.
    """

    def __init__(self, world: World, baton: Baton, course: AppCourse, calls: Calls, run: Any) -> None:
        self._world, self._baton, self._course, self._run = world, baton, course, run
        self._calls, self._wire = calls, Wire()
        self._clients = {node_id_of(client): client for client in range(world.setup.clients)}
        self._nodes = list(self._clients)
        self._exchanges: dict[str, Exchange] = {}
        self._unanswered: list[Exchange] = []
        self._looked_at = -1.0

    def set_run(self, run: Any) -> None:
        """Keep the description of the run; there is one run only."""
        self._run = run

    @property
    def run(self) -> Any:
        """The description of the run."""
        return self._run

    def create_message(
        self, content: Any, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Any:
        """A new message, as in Flower."""
        from flwr.app import Message

        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        """The nodes whose devices are available now."""
        if self._baton.holds():
            there = self._calls.nodes()
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
        ids = [f"{len(self._exchanges) + index:064x}" for index in range(len(batch))]
        letters = []
        for number, message in zip(ids, batch, strict=True):
            message.metadata.__dict__["_message_id"] = number
            # A node gets a copy, as over a network: neither side sees what the other one changes later.
            own = copied_message(message)
            wired = self._wire.sent(own, message.content)
            age = date_at(self._world.now).timestamp() - own.metadata.created_at
            left = max(0.0, own.metadata.ttl - age)
            letters.append(Letter(self._clients[message.metadata.dst_node_id], own, wired, left))
        self._wire.forget()
        if self._course.starts_round([each.message for each in letters]):
            self._calls.begin_round()
        exchanges = self._calls.push(letters)
        self._exchanges |= zip(ids, exchanges, strict=True)
        self._unanswered += exchanges
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        """The replies that have arrived.

        Time does not pass, except if a second call at the same time finds nothing again: it waits for the next reply
        to any message, as an app may ask for one message after another.
        """
        self._check_thread("pull_messages")
        exchanges = [self._of(each) for each in message_ids]
        found = self._calls.pull(exchanges)
        self._unanswered = [each for each in self._unanswered if each.outcome is None]
        expected = self._unanswered and not all(each.pulled for each in exchanges)
        if not found and expected and self._looked_at == self._world.now:
            self._calls.wait(self._unanswered, until="any")
            found = self._calls.pull(exchanges)
        self._looked_at = self._world.now
        return [each.reply for each in found]

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        """Send messages, and return when all replies are there or at the time-out."""
        timeout = finite(timeout)
        exchanges = [self._exchanges[each] for each in self.push_messages(messages)]
        if exchanges:
            self._calls.wait(exchanges, until="all", timeout=timeout)
        return [each.reply for each in self._calls.pull(exchanges, gives_up=True)]

    def _of(self, message_id: str) -> Exchange:
        if message_id not in self._exchanges:
            raise ValueError(f"no message with the id {message_id} was sent")
        return self._exchanges[message_id]

    def _check_thread(self, call: str) -> None:
        self._baton.check()
        if not self._baton.holds():
            self._baton.fail(
                UserError(
                    f"the ServerApp calls grid.{call} in a thread that it started itself; edgefl runs the threads of "
                    "Flower's own legacy server, and no others: call it in the main thread",
                    field="flower.app",
                )
            )


def virtual_grid(world: World, baton: Baton, course: AppCourse, calls: Calls, run: Any) -> VirtualGrid:
    """The grid, which ``isinstance(grid, flwr.serverapp.Grid)`` accepts."""
    from flwr.serverapp import Grid

    Grid.register(VirtualGrid)
    return VirtualGrid(world, baton, course, calls, run)
