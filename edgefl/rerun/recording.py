"""What a finished run's log says of its training: who trained when, and every number that training gave the world."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from edgefl.errors import UserError
from edgefl.record.events import Event
from edgefl.training.job import Digests, Evaluation, Feedback

TIMELESS = frozenset({"loss", "distance", "samples", "label_support"})
"""Inputs of decisions that are the same on every network and fleet; whatever else a decision reads depends on time."""

_KINDS = ("decision", "transfer_start", "compute_start", "compute_end", "compute_partial", "aggregation", "feedback")
_WANTED = ("run", *_KINDS, "evaluation", "diverged", "stop")
_ALPHA = re.compile(r"/alpha(\d+)/")


class TrainedJob(NamedTuple):
    """A job that a client began to train.

    Attributes:
        round: from 0.
        alpha: blocks received.
        steps: local steps; None if it broke off.
        previous: the client's last job that was computed to its end before, on whose state it built if the method
            keeps any.
    """

    round: int
    alpha: int
    steps: int | None
    previous: int | None


@dataclass
class Recording:
    """The training of one run; jobs are (client, dispatch), rounds count from 0, model versions are rounds done.

    Attributes:
        jobs: what was trained.
        aggregated: by round, the jobs that went into the next model.
        feedback: by job, what it told.
        evaluations: by model version.
        diverged: the round that found a number that is not finite, and what it said.
        digests: by model version; none where an older edgefl wrote the log.
        reason: why the run stopped.
        timed: decisions that depended on time, as (round, what was decided, what it read).
        cohorts: by round, the clients that were picked for it.
        alphas: by round in which a scheduler chose, each client's number of blocks.
    """

    jobs: dict[tuple[int, int], TrainedJob] = field(default_factory=dict)
    aggregated: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    feedback: dict[tuple[int, int], Feedback] = field(default_factory=dict)
    evaluations: dict[int, Evaluation] = field(default_factory=dict)
    diverged: tuple[int, str] | None = None
    digests: dict[int, Digests] = field(default_factory=dict)
    reason: str = ""
    timed: list[tuple[int, str, list[str]]] = field(default_factory=list)
    cohorts: dict[int, list[int]] = field(default_factory=dict)
    alphas: dict[int, dict[int, int]] = field(default_factory=dict)


def read_recording(path: Path) -> Recording:
    """The training that an ``events.parquet`` tells of.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        table = pq.read_table(
            path, columns=["kind", "round", "client", "item", "value", "detail"], page_checksum_verification=True
        )
        rows = table.filter(pc.is_in(table["kind"].cast(pa.string()), value_set=pa.array(_WANTED))).to_pylist()
        return _read(rows)
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"the log cannot be read: {reason}", file=str(path)) from None


def recording_of(events: Iterable[Event]) -> Recording:
    """The training that the rows of a log tell of.

    Raises:
        UserError: they are damaged.
    """
    try:
        return _read([event._asdict() for event in events if event.kind in _WANTED])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"the log cannot be read: {type(error).__name__}: {error}") from None


def _read(rows: list[dict[str, Any]]) -> Recording:
    recording = Recording()
    dispatches: dict[tuple[int, int], int] = {}
    done: dict[int, int] = {}
    for row in rows:
        kind, round, client = row["kind"], row["round"] - 1, row["client"]
        facts: Mapping[str, Any] = json.loads(row["detail"]) if row["detail"] else {}
        if kind == "run" and "model" in facts:
            recording.digests[0] = Digests("", facts["model"])
        elif kind == "decision":
            _note_decision(recording, round, row["item"], facts)
        elif kind == "transfer_start" and client >= 0:
            dispatches[client, round] = facts["dispatch"]
        elif kind == "compute_start":
            job = (client, dispatches[client, round])
            alpha = _ALPHA.search(row["item"])
            recording.jobs[job] = TrainedJob(round, int(alpha[1]) if alpha else -1, None, done.get(client))
        elif kind in ("compute_end", "compute_partial"):
            job = (client, dispatches[client, round])
            recording.jobs[job] = recording.jobs[job]._replace(steps=int(row["value"]))
            done[client] = job[1]
        elif kind == "aggregation":
            recording.aggregated[round] = list(zip(facts["clients"], facts["dispatches"], strict=True))
            if "model" in facts:
                recording.digests[round + 1] = Digests(facts["before"], facts["model"])
        elif kind == "feedback":
            dispatch = dict(recording.aggregated[round])[client]
            recording.feedback[client, dispatch] = Feedback(**dict(_floats(facts)))
        elif kind == "evaluation":
            numbers = {name: value for name, value in facts.items() if name not in ("ema", "model")}
            model = facts.get("model", "")
            recording.evaluations[round + 1] = Evaluation(**dict(_floats(numbers)), model=model)
        elif kind == "diverged":
            recording.diverged = (round, str(facts["reason"]))
        elif kind == "stop":
            recording.reason = row["item"]
    return recording


def _note_decision(recording: Recording, round: int, what: str, facts: Mapping[str, Any]) -> None:
    timed = sorted(set(facts["reads"]) - TIMELESS)
    if timed:
        recording.timed.append((round, what, timed))
    if what == "selection":
        recording.cohorts[round] = facts["clients"]
    elif what == "blocks":
        recording.alphas[round] = {int(client): alpha for client, alpha in facts["alphas"].items()}


def _floats(facts: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    # Numbers that are not finite stand in the log as text.
    return ((name, float(value)) for name, value in facts.items())
