"""The event log, one row for each event, in order: every figure of edgefl is a sum over these rows."""

import json
import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any, NamedTuple

import pyarrow as pa

from edgefl.errors import EdgeflError
from edgefl.files import parse_json
from edgefl.record.kinds import F64, I32, I64, Column, EventKind, schema_of
from edgefl.record.rounds import RoundRow
from edgefl.record.summary import SeedResult

ABSENT = -1
"""The value of a column of whole numbers in rows that have none."""

WorkKey = tuple[int, int, int, int]

_WORD = pa.dictionary(pa.int32(), pa.string())


class Event(NamedTuple):
    """One row of the log. Columns of whole numbers are -1, and texts are empty, in rows that have none.

    The table in ``docs/time-model.md`` gives the meaning of each kind of event.
    Prefetches belong to the round that will use them. A Flower app's local training has no ``images``: its facts have
    the number ``work`` of the work in ``costs.json`` (older logs have this number in ``images``).
    """

    time: Annotated[float, Column(F64, "s", "virtual time")]
    kind: Annotated[EventKind, Column(_WORD, "", "what happened")]
    round: Annotated[int, Column(I32, "", "the round it belongs to, from 1; -1 for none")] = ABSENT
    client: Annotated[int, Column(I32, "", "the client concerned; -1 for the server and the network")] = ABSENT
    dispatch: Annotated[int, Column(I32, "", "number of the client's job, from 0; -1 for none")] = ABSENT
    group: Annotated[int, Column(I32, "", "of local training: the kind of device, from 0; -1 for none")] = ABSENT
    alpha: Annotated[int, Column(I32, "", "of local training: the number of blocks received; -1 for none")] = ABSENT
    images: Annotated[int, Column(I32, "", "of local training: the client's number of images; -1 for none")] = ABSENT
    item: Annotated[str, Column(_WORD, "", "what was sent, decided or reached, or the device that trains")] = ""
    flow: Annotated[int, Column(I64, "", "number of the transfer; -1 for none")] = ABSENT
    source: Annotated[str, Column(_WORD, "", "node of the topology")] = ""
    target: Annotated[str, Column(_WORD, "", "node of the topology")] = ""
    bytes: Annotated[float, Column(I64, "B", "size of a transfer, or what was delivered; memory of a job")] = 0.0
    seconds: Annotated[float, Column(F64, "s", "how long it took")] = 0.0
    flops: Annotated[float, Column(F64, "FLOP", "floating-point operations executed")] = 0.0
    joules: Annotated[float, Column(F64, "J", "energy that the device drew for it")] = 0.0
    value: Annotated[float, Column(F64, "", "the number that the kind is about")] = 0.0
    detail: Annotated[str, Column(pa.string(), "", "further facts as JSON")] = ""

    @property
    def job(self) -> tuple[int, int]:
        return self.client, self.dispatch

    @property
    def work(self) -> WorkKey:
        """The identity of work: group, alpha, images or number, and local steps that the server chose (else 0)."""
        facts = self.facts
        number = facts.get("work", ABSENT) if self.images == ABSENT else self.images
        return self.group, self.alpha, number, facts.get("steps", 0)

    @property
    def facts(self) -> dict[str, Any]:
        """The further facts; empty if there are none."""
        found: dict[str, Any] = parse_json(self.detail) if self.detail else {}
        return found


EVENTS = schema_of(Event)
"""Columns of ``events.parquet``."""


def detail(**facts: Any) -> str:
    """Facts as JSON text, the same on every machine; floats exact, non-finite ones as text.

    >>> detail(loss=0.1, distance=float("nan"))
    '{"loss": 0.1, "distance": "nan"}'
    """
    return "{" + ", ".join([f'"{key}": {_text(value)}' for key, value in facts.items()]) + "}"


def _text(value: Any) -> str:
    if isinstance(value, float):
        # As in JSON; the encoder gives the same result, but needs ten times as long to set up.
        return float.__repr__(value) if math.isfinite(value) else f'"{value!r}"'
    return str(value) if type(value) is int else json.dumps(value)


class Listener:
    """Follows runs; each method does nothing unless it is overridden.

    At each moment, listeners are called in the order of their list. An error that one raises ends the run and is passed
    on; the listeners after it are not called, and more events of the same instant may follow. A listener must not
    change what the run computes.

    For each run, ``run_began`` is followed by ``events`` and ``round_ended`` in turn, ``simulated``, the last
    ``events``, and ``run_ended``. A resumed run begins again: its listeners also receive the rounds that are on disk.
    """

    def began(self, runs: list[tuple[str, int]], rounds: int) -> None:
        """The runs ``(method's label, seed)`` will follow one after the other, each of at most ``rounds`` rounds."""

    def advised(self, advice: str) -> None:
        """A sentence about this processor, the run's precision or a method, after ``began``; often there is none."""

    def run_began(self, label: str, seed: int) -> None:
        """The run of a method with a seed begins; its data are loaded."""

    def events(self, rows: list[Event]) -> None:
        """The next rows of the log. All rows of a round come before its ``round_ended``."""

    def round_ended(self, row: RoundRow) -> None:
        """A round has ended, and its row is complete."""

    def simulated(self, rounds: int) -> None:
        """No more rounds follow, and the last model, after ``rounds`` rounds, is evaluated; not called after a fault.

        Only the rows of the log that give the reason for the end follow. A fault of a part of the method
        (:class:`~edgefl.training.faults.PartFault`) that is raised here becomes this reason.
        """

    def run_ended(self, result: SeedResult) -> None:
        """The run has ended; ``result`` is its entry in ``summary.json``."""


_tuple = tuple.__new__


class ListenerError(EdgeflError):
    """An error of a caller's listener, on its way to the caller: it is not one of the run."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def marked(listener: Listener) -> Listener:
    """A listener that calls another one, and raises its errors as :class:`ListenerError`."""

    def calling(method: Callable[..., None]) -> Callable[..., None]:
        @wraps(method)
        def call(*arguments: Any) -> None:
            try:
                method(*arguments)
            except Exception as error:
                raise ListenerError(error) from error

        return call

    marking = Listener()
    for moment in vars(Listener):
        if not moment.startswith("_"):
            setattr(marking, moment, calling(getattr(listener, moment)))
    return marking


class EventLog:
    """Collects rows and passes them to listeners."""

    BATCH = 2048
    """The largest number of rows that are collected."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._rows: list[Event] = []
        self._passed = 0
        self.rounds = 0
        self._listeners = listeners
        self.priced: Callable[[Event], Event] | None = None  # adds to a row what it emits and costs
        self.watch: Callable[[Event], None] | None = None  # called with each event at once, not in batches

    @property
    def written(self) -> int:
        return self._passed + len(self._rows)

    def write(
        self,
        time: float,
        kind: EventKind,
        round: int = ABSENT - 1,
        client: int = ABSENT,
        dispatch: int = ABSENT,
        *,
        group: int = ABSENT,
        alpha: int = ABSENT,
        images: int = ABSENT,
        item: str = "",
        flow: int = ABSENT,
        source: str = "",
        target: str = "",
        bytes: float = 0.0,
        seconds: float = 0.0,
        flops: float = 0.0,
        joules: float = 0.0,
        value: float = 0.0,
        detail: str = "",
    ) -> None:
        """Append one row of :class:`Event`; ``round`` counts from 0 here, and equals the version of the model."""
        rows, number = self._rows, round + 1
        self.rounds += kind == "round_end"
        # Create the tuple directly, without the extra call of a named tuple's constructor.
        row = (time, kind, number, client, dispatch, group, alpha, images, item, flow, source, target, bytes, seconds,
               flops, joules, value, detail)  # fmt: skip
        rows.append(_tuple(Event, row) if self.priced is None else self.priced(_tuple(Event, row)))
        if self.watch is not None:
            self.watch(rows[-1])
        if len(self._rows) >= self.BATCH:
            self.flush()

    def flush(self) -> None:
        rows, self._rows = self._rows, []
        self._passed += len(rows)
        if rows:
            for listener in self._listeners:
                listener.events(rows)
