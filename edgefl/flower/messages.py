"""The bytes of Flower's messages, and the error messages that Flower would give."""

import copy
from typing import Any, NamedTuple

from edgefl.methods.parts.payload import Part
from edgefl.randomness import integer_seed

NODE_SECONDS_WITHOUT_HEARTBEAT = 60.0
"""Seconds after which Flower reports a lost node: 2 heartbeats that are 30 s apart (``flwr.common.constant``)."""


def node_id_of(client: int) -> int:
    """63 bits, as Flower's node ids, and the same in every run."""
    return integer_seed(0, "flower node", client)


def content_bytes(message: Any) -> int:
    """What Flower's ``count_bytes`` counts: names and values of all records; 0 for an error."""
    if not message.has_content():
        return 0
    return sum(_record_bytes(record) for record in message.content.values())


def _record_bytes(record: Any) -> int:
    # Flower's own function fails on empty texts and lists, which need no byte.
    try:
        return int(record.count_bytes())
    except (ValueError, IndexError):
        full = {key: value for key, value in record.items() if value not in ("", b"", [])}
        return int(type(record)(full).count_bytes()) + sum(len(key) for key in record if key not in full)


class Sent(NamedTuple):
    """A message on the wire: its parts, and the digest of its type and its content."""

    parts: tuple[Part, ...]
    digest: str


class Wire:
    """The parts of messages on the wire; contents that several messages share are serialised once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, int, int, int, str]] = {}
        self._contents = 0

    def sent(self, message: Any, content: Any = None) -> Sent:
        """The content of a message, which several messages may share, and its framing.

        The framing is what Flower's serialisation adds to the content: the heads of its objects with the hashes of
        their parts, and the message's own metadata. What gRPC, HTTP and TLS add belongs to the network's transport.
        """
        from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

        counted, below, number, digest = 0, 0, 0, ""
        if message.has_content():
            key = id(content)
            known = None if content is None else self._known.get(key)
            if known is None:
                objects = get_all_nested_objects(message.content)
                self._contents += 1
                below = sum(len(each.deflate()) for each in objects.values())
                digest = next(reversed(objects))  # the last one is the content itself
                known = (content, content_bytes(message), below, self._contents, digest)
                if content is not None:
                    self._known[key] = known
            counted, below, number, digest = known[1:]
        whole = below + len(message.deflate())
        # Equal chunks of arrays are sent once, so the whole can be less than the content.
        counted = min(counted, whole)
        parts = (Part("content", counted, number), Part("framing", whole - counted, number))
        return Sent(tuple(part for part in parts if part.bytes), f"{message.metadata.message_type} {digest}")

    def forget(self) -> None:
        self._known.clear()


def copied(records: Any) -> Any:
    """A copy of a ``RecordDict`` that shares only what cannot be changed, such as the bytes of arrays."""
    from flwr.app import Array, ArrayRecord, RecordDict

    copies = RecordDict()
    for name, record in records.items():
        if isinstance(record, ArrayRecord):
            arrays = {
                key: Array(array.dtype, tuple(int(size) for size in array.shape), array.stype, array.data)
                for key, array in record.items()
            }
            copies[name] = ArrayRecord(arrays)
        else:
            copies[name] = type(record)(copy.deepcopy(dict(record)))
    return copies


def copied_message(message: Any) -> Any:
    """Like :func:`copied`, for a whole message."""
    from flwr.app.message import make_message

    return make_message(copy.deepcopy(message.metadata), copied(message.content))


def error_reply(message: Any, code: str, reason: str) -> Any:
    """The reply to a message with an error."""
    from flwr.app import Message
    from flwr.app.error import Error
    from flwr.common.constant import ErrorCode

    return Message(Error(getattr(ErrorCode, code), reason), reply_to=message)


def node_unavailable(message: Any) -> Any:
    """The SuperLink's error for a message to a lost node."""
    from flwr.server.superlink.linkstate.utils import create_message_error_unavailable_res_message as lost

    return lost(message.metadata, "node_unavail")


def expired(message: Any) -> Any:
    """The SuperLink's error for a message whose time to live is over."""
    from flwr.server.superlink.linkstate.utils import create_message_error_unavailable_ins_message as gone

    return gone(message.metadata.message_id, message.metadata.run_id)
