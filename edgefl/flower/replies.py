"""The replies of an app's clients on disk: a resumed run returns them without calling the ``ClientApp``.

Each is one file while its run is in progress: a line of JSON, then the reply and the node's context in Flower's own
serialisation (protocol buffers). Reading them executes nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.errors import EdgeflError
from edgefl.experiment.step_costs import recorded_cost, row_of
from edgefl.files import write_file
from edgefl.record.costs import StepRow
from edgefl.validation import validated

if TYPE_CHECKING:
    from edgefl.flower.client_work import Answer


class DecidedDifferently(EdgeflError):  # noqa: N818  (what happened)
    """A ``ServerApp`` that is executed again for a resumption sends other messages than before."""


class Replies:
    """Keeps answers, and returns those that an earlier process kept.

    Args:
        folder: the folder of their files; created with the first one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recorded(self, client: int, dispatch: int, digest: str) -> Answer | None:
        """The kept answer of a client to a message.

        Raises:
            DecidedDifferently: the kept answer is one to another message.
        """
        from flwr.common.serde import context_from_proto, message_from_proto
        from flwr.proto.message_pb2 import Context, Message

        from edgefl.flower.client_work import Answer

        file = self._file(client, dispatch)
        if not file.exists():
            return None
        head, _, content = file.read_bytes().partition(b"\n")
        known = json.loads(head)
        if known["message"] != digest:
            raise DecidedDifferently(
                f"message {dispatch + 1} to client {client} is not the one that it was before the interruption: the "
                "ServerApp decided differently when it is executed again (it may read a clock, or draw from a "
                "generator that edgefl does not seed), so the run cannot be resumed"
            )
        return Answer(
            reply=message_from_proto(Message.FromString(content[: known["reply"]])),
            context=context_from_proto(Context.FromString(content[known["reply"] :])),
            cost=recorded_cost(validated(StepRow, known["cost"])),
            steps=known["steps"],
            waits=known["waits"],
        )

    def record(self, client: int, dispatch: int, digest: str, answer: Answer) -> None:
        """Keep an answer at once, so that a kill in the middle of a round does not lose it."""
        from flwr.common.serde import context_to_proto, message_to_proto

        try:
            reply = message_to_proto(answer.reply).SerializeToString()
            context = context_to_proto(answer.context).SerializeToString()
        except (ValueError, TypeError):  # the app keeps something in its configuration that Flower cannot serialise
            return
        head = {
            "message": digest,
            "reply": len(reply),
            "cost": row_of(1, 1, answer.cost).model_dump(mode="json"),
            "steps": answer.steps,
            "waits": answer.waits,
        }
        self._folder.mkdir(exist_ok=True)
        write_file(self._file(client, dispatch), json.dumps(head).encode() + b"\n" + reply + context)

    def _file(self, client: int, dispatch: int) -> Path:
        return self._folder / f"{client}-{dispatch}"
