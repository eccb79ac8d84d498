"""What an app did in a finished run, from its log: the calls of its ``ServerApp``, and its clients' answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from edgefl.experiment.recording import recording_of
from edgefl.methods.payload import Part
from edgefl.record.events import Event
from edgefl.training.job import Evaluation

CALLS = frozenset({"round", "selection", "wait", "pull", "sleep", "nodes", "start", "join", "end"})
"""The decisions that are calls; see :mod:`edgefl.flower.calls`."""


class Call(NamedTuple):
    """A call of a thread.

    Attributes:
        round: from 1.
        what: one of :data:`CALLS`.
        facts: its arguments and its result.
    """

    round: int
    what: str
    facts: dict[str, Any]


class Answer(NamedTuple):
    """What a client did with a message.

    Attributes:
        work: the number of its work.
        refused: whether the device had too little memory.
        raised: whether the ``ClientApp`` ended with an error.
    """

    work: int
    refused: bool
    raised: bool


@dataclass
class Trace:
    """The calls and answers of one run; messages are (client, number).

    Attributes:
        calls: by thread.
        answers: by message.
        parts: what each reply was on the wire.
        works: optimizer steps and waited seconds of each piece of work.
        evaluations: by rounds that had ended.
        reason: why the run ended.
    """

    calls: dict[int, list[Call]] = field(default_factory=lambda: defaultdict(list))
    answers: dict[tuple[int, int], Answer] = field(default_factory=dict)
    parts: dict[tuple[int, int], tuple[Part, ...]] = field(default_factory=dict)
    works: dict[int, tuple[int, float]] = field(default_factory=dict)
    evaluations: dict[int, Evaluation] = field(default_factory=dict)
    reason: str = ""


def trace_of(events: Sequence[Event]) -> Trace | None:
    """The trace of a run; None if its log has no calls, because an older version of edgefl wrote it.

    Raises:
        ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError: the rows are damaged.
    """
    recording, trace = recording_of(events), Trace()
    trace.evaluations, trace.reason = recording.evaluations, recording.reason
    for event in events:
        facts = event.facts
        if event.kind == "decision" and event.item in CALLS and "thread" in facts:
            trace.calls[facts["thread"]].append(Call(event.round, event.item, facts))
        elif event.kind == "work":
            trace.works[facts["work"]] = int(event.value), facts.get("waits", 0.0)
        elif event.kind in ("compute_start", "refused"):
            trace.answers[event.job] = Answer(facts["work"], event.kind == "refused", facts.get("raises", False))
        elif event.kind == "transfer_start" and event.item == "up":
            trace.parts.setdefault(event.job, parts_of(facts["parts"]))
    return trace if trace.calls else None


def parts_of(bytes: dict[str, int]) -> tuple[Part, ...]:
    """What the log calls the parts of a message."""
    return tuple(Part(name, size, 1) for name, size in bytes.items())
