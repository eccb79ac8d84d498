"""One message to a node and its reply in the simulated world: download, work, upload."""

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import simpy

from edgefl.fleet.figure import value
from edgefl.flower.client_work import Clients
from edgefl.flower.messages import NODE_SECONDS_WITHOUT_HEARTBEAT, Sent, Wire, error_reply, expired, node_unavailable
from edgefl.flower.virtual_time import date_at
from edgefl.methods.parts.payload import Downlink, Part
from edgefl.record.events import ABSENT
from edgefl.simulation.participation import Life, Participation
from edgefl.simulation.work import Work
from edgefl.simulation.world import World
from edgefl.training.faults import blaming

UNKNOWN_WORK = Work("", ABSENT, 1, ABSENT, 0, {}, 0.0, 0.0, 0.0, 0.0, True, 0.0, 0.0, math.inf)
"""The work of a message to which the ``ClientApp`` has not been applied yet."""


class Exchange(Participation):
    """A message, from its push until the server has its reply or gives it up.

    A node handles one message at a time, as Flower's SuperNode does. Where the device is lost, the reply is the error
    that Flower gives when the node's heartbeats are missing; another one when its time to live is over.

    ``pulled``: the app has the reply; ``given_up``: the app will never ask for it.
    """

    def __init__(
        self,
        world: World,
        clients: Clients,
        wire: Wire,
        *,
        client: int,
        round: int,
        message: Any,
        sent: Sent,
        on_left: Callable[[Any], None],
    ) -> None:
        super().__init__(world, client, round, Downlink(sent.parts, 1), UNKNOWN_WORK, on_left=on_left)
        self.message = message
        self.reply: Any = None
        self.replied_at = math.nan  # virtual time at which the server had the reply
        self.replied: simpy.Event = world.env.event()  # triggers then
        self.pulled = self.given_up = False
        self._clients, self._wire, self._digest = clients, wire, sent.digest
        self._own_reply: Any = None  # the node's
        self._context: Any = None  # that of the node after its work
        self._pushed_at = self._env.now
        age = date_at(self._env.now).timestamp() - message.metadata.created_at
        left = max(0.0, message.metadata.ttl - age)
        # A message lives for hours, so its timer must not keep the content of one that is answered.
        own = weakref.ref(self)
        self._env.alarm(left).callbacks.append(lambda _: None if (it := own()) is None else it._answer(expired))

    @property
    def useful(self) -> bool:
        """True if the app has received a reply that is not an error."""
        return self.pulled and self.phase == "arrived" and not self.reply.has_error()

    def _live(self, *, submit_first: bool = False) -> Life:
        if self.replied.triggered:  # it expired while the node had others; Flower deletes such a message
            self.drop("late")
            self._on_left(self)
            return
        yield from super()._live(submit_first=submit_first)

    def _received(self) -> None:
        answer, self.work = self._clients.execute(self.client, self.message, self.job.id.dispatch, self._digest)
        self._own_reply, self._context = answer.reply, answer.context
        if not self.work.fits:
            self.refused = True
            self.world.refused(self.job, self.work)
            has = value(self.world.setup.fleet.profile_of(self.client).memory.training)
            why = f"the work needs {self.work.peak_memory_bytes:.0f} bytes of memory, the device has {has:.0f}"
            self._own_reply = error_reply(self.message, "CLIENT_APP_CRASHED", why)

    def _returned(self) -> Sequence[Part]:
        if not self.refused:
            self._clients.keep(self.client, self._context)
        with blaming(self.world.setup.label, self.round, f"the reply of client {self.client}"):
            return self._wire.sent(self._own_reply).parts

    def _arrived(self) -> None:
        self._answer(lambda _: self._own_reply)
        if self.given_up or self.reply is not self._own_reply:
            self.lose("late")
        elif self.reply.has_error():
            self.lose("dropped")

    def quit(self, reason: str) -> None:
        """The device drops out; its heartbeats are missing."""
        if not self.over:
            super().quit(reason)
            # A device that was not there when the message was pushed is known to be offline.
            wait = 0.0 if self._env.now == self._pushed_at else NODE_SECONDS_WITHOUT_HEARTBEAT
            self._env.timeout(wait).callbacks.append(lambda _: self._answer(node_unavailable))

    def _answer(self, make: Callable[[Any], Any]) -> None:
        """The server has a reply, if it has none yet."""
        if self.reply is None:
            self.reply, self.replied_at = make(self.message), self._env.now
            self.replied.succeed()
