"""The bytes and metrics of Flower's messages, and the error messages that Flower would give."""

import copy
import math
import numbers
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from edgefl.errors import UserError
from edgefl.flower.virtual_time import replaced
from edgefl.methods.parts.payload import Part
from edgefl.randomness import integer_seed
from edgefl.training.job import Evaluation

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


Source = Literal["server", "clients"]
"""Who evaluated: the ``ServerApp`` itself, or the clients, whose metrics it aggregated."""


ROUNDING = 1e-5
"""How far beyond 0 and 1 a mean of shares in single precision may be."""


class Metrics:
    """The metrics of the present round; ``name`` is the accuracy, or None; ``whole`` is 100 for per cent."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self.whole: float | None = None
        self._found: dict[Source, dict[str, float]] = {}
        self.names: set[str] = set()

    def add(self, source: Source, round: int, values: Mapping[str, Any]) -> None:
        """Add metrics of a round of the app; those of round 0 belong to the initial model, and do not count."""
        found = {name: float(value) for name, value in values.items() if isinstance(value, numbers.Real)}
        self.names |= set(found)
        if round > 0:
            self._found.setdefault(source, {}).update(found)

    def clear(self) -> None:
        self._found.clear()

    def evaluation(self) -> Evaluation | None:
        """The server's evaluation, else the clients'; None for NaN; UserError if the accuracy is none."""
        sources: tuple[Source, ...] = ("server", "clients")
        for source in sources:
            found = self._found.get(source, {})
            name = self._name if self._name is not None else next((each for each in found if "acc" in each), None)
            if name is None or name not in found or math.isnan(found[name]):
                continue
            if self.whole is None:
                self.whole = 1.0 if found[name] <= 1 + ROUNDING else 100.0
            value = found[name] / self.whole
            if not -ROUNDING <= value <= 1 + ROUNDING:
                raise UserError(
                    f"the app's metric '{name}' is {found[name]:g}, which is no accuracy (it began as one from 0 to "
                    f"{self.whole:g}): choose another one with flower.metric, or return it from 0 to 1",
                    field="flower.metric",
                )
            loss = next((number for each, number in found.items() if "loss" in each), math.nan)
            return Evaluation(min(1.0, max(0.0, value)), loss)
        return None


class _Noting(dict[int, Any]):
    """A dictionary of metrics by round that reports its entries; a copy or a pickle of it is an ordinary one."""

    def __init__(self, given: Mapping[int, Any], report: Callable[[int, Mapping[str, Any]], None]) -> None:
        super().__init__()
        self._report = report
        for round, values in given.items():
            self[round] = values

    def __setitem__(self, round: int, values: Any) -> None:
        super().__setitem__(round, values)
        self._report(round, values)

    def __reduce__(self) -> tuple[type, tuple[dict[int, Any]]]:
        return dict, (dict(self),)


@contextmanager
def observed(metrics: Metrics) -> Iterator[None]:
    """Within the block, results of Flower's strategies also add their metrics to ``metrics``."""
    from flwr.server.history import History
    from flwr.serverapp.strategy import Result

    made, adds = Result.__init__, dict[str, Any]()

    def make(result: Any, *arguments: Any, **options: Any) -> None:
        made(result, *arguments, **options)
        server, clients = result.evaluate_metrics_serverapp, result.evaluate_metrics_clientapp
        result.evaluate_metrics_serverapp = _Noting(server, lambda *entry: metrics.add("server", *entry))
        result.evaluate_metrics_clientapp = _Noting(clients, lambda *entry: metrics.add("clients", *entry))

    def adding(then: Any, source: Any, name: str | None) -> Any:
        def add(history: Any, server_round: int, values: Any = None, **named: Any) -> None:
            given = next(iter(named.values())) if named else values
            then(history, server_round, given)
            metrics.add(source, server_round, given if name is None else {name: given})

        return add

    for where, source in (("centralized", "server"), ("distributed", "clients")):
        for what, name in (("loss", "loss"), ("metrics", None)):
            method = f"add_{what}_{where}"
            adds[method] = adding(getattr(History, method), source, name)
    with replaced((Result, "__init__", make), *((History, method, add) for method, add in adds.items())):
        yield
