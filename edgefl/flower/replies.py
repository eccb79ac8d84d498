"""The replies of an app's clients in the run's journal: a resumed run returns them without calling the ``ClientApp``.

Records are protocol buffers of Flower's own serialisation and JSON. Reading them executes nothing.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from typing import Any

from edgefl.cost.measure import StepCost
from edgefl.experiment.journal import Journal, LogDiffers, Reply
from edgefl.experiment.step_costs import recorded_cost, row_of
from edgefl.record.costs import StepRow
from edgefl.validation import validated

REPLY_BYTES = 2**29
"""A recorded reply with its context; SQLite stores at most 10^9 bytes in a value."""
REPLIES_BYTES = 2**34
"""All of them in one run."""


@dataclass(frozen=True)
class Answer:
    """What a ``ClientApp`` answered to a message.

    Attributes:
        reply: its reply, or the error that it ended with.
        context: the node's context after it.
        cost: the operators that it executed.
        steps: its optimizer steps.
        waits: the seconds that no operator takes.
    """

    reply: Any
    context: Any
    cost: StepCost
    steps: int
    waits: float


class Replies:
    """Records answers, and returns those that an earlier process recorded.

    An answer that is too large is not recorded, and a resumed run calls the ``ClientApp`` again.

    Args:
        journal: the run's journal.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._bytes = journal.recorded_bytes()
        self._warned = False

    def recorded(self, client: int, dispatch: int, digest: str) -> Answer | None:
        """The recorded answer of a client to a message.

        Args:
            client: the client.
            dispatch: the number of its earlier messages.
            digest: the digest of the message.

        Raises:
            LogDiffers: the recorded answer is one to another message.
            UserError: the record is damaged.
        """
        found = self._journal.reply(client, dispatch)
        if found is None:
            return None
        if found.message != digest:
            raise LogDiffers(
                f"message {dispatch + 1} to client {client} is not the one that it was before the interruption: the "
                "ServerApp decided differently when it is executed again (it may read a clock, or draw from a "
                "generator that edgefl does not seed), so the run cannot be resumed"
            )
        try:
            return _answer(found)
        except Exception as error:  # noqa: BLE001  (protocol buffers, Flower and JSON have errors of many classes)
            raise self._journal.damaged_reply(error) from None

    def record(self, client: int, dispatch: int, digest: str, answer: Answer) -> None:
        """Record an answer, unless the limits on recorded bytes forbid it."""
        try:
            record = _record(digest, answer)
        except (ValueError, TypeError):  # the app keeps something in its configuration that Flower cannot serialise
            return
        size = len(record.reply) + len(record.context)
        if size <= REPLY_BYTES and self._bytes + size <= REPLIES_BYTES:
            self._bytes += size
            self._journal.record(client, dispatch, record)
        elif not self._warned:
            self._warned = True
            warnings.warn(
                f"a reply of client {client} has {size} bytes, and {self._bytes} are recorded; more than "
                f"{REPLY_BYTES} of a reply or {REPLIES_BYTES} of a run are not recorded, so a resumed "
                "run executes these clients again",
                stacklevel=2,
            )


def _record(digest: str, answer: Answer) -> Reply:
    from flwr.common.serde import context_to_proto, message_to_proto

    work = {
        "cost": row_of(1, 1, answer.cost).model_dump(mode="json"),
        "steps": answer.steps,
        "waits": answer.waits,
    }
    return Reply(
        digest,
        json.dumps(work),
        message_to_proto(answer.reply).SerializeToString(),
        context_to_proto(answer.context).SerializeToString(),
    )


def _answer(record: Reply) -> Answer:
    from flwr.common.serde import context_from_proto, message_from_proto
    from flwr.proto.message_pb2 import Context, Message

    work = json.loads(record.work)
    return Answer(
        reply=message_from_proto(Message.FromString(record.reply)),
        context=context_from_proto(Context.FromString(record.context)),
        cost=recorded_cost(validated(StepRow, work["cost"])),
        steps=int(work["steps"]),
        waits=float(work["waits"]),
    )
