"""The training of a run as recorded in its log: every job, and every number that training returned to the world."""

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
"""Inputs of decisions that are equal on every network and fleet; all other inputs depend on time."""

_KINDS = ("decision", "transfer_start", "compute_start", "compute_end", "compute_partial", "aggregation", "feedback")
_WANTED = ("run", *_KINDS, "evaluation", "diverged", "stop")
DAMAGED = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
"""Errors from rows that no edgefl wrote."""

_ALPHA = re.compile(r"/alpha(\d+)/")


class TrainedJob(NamedTuple):
    """A job that a client began to train.

    Attributes:
        round: from 0.
        alpha: blocks received.
        steps: local steps; None if it was aborted.
        previous: the client's last completed job before this one, whose client state it continued if the method has
            one.
    """

    round: int
    alpha: int
    steps: int | None
    previous: int | None


@dataclass
class Recording:
    """The training of one run; jobs are (client, dispatch), rounds count from 0, model versions are rounds done.

    Attributes:
        jobs: the trained jobs.
        aggregated: for each round, the jobs in the next model.
        feedback: by job.
        evaluations: by model version.
        diverged: the round in which a number was not finite, and the message.
        digests: by model version; empty in logs of edgefl 0.1.0.
        reason: why the run stopped.
        timed: decisions that depended on time, as (round, name, inputs).
        cohorts: for each round, the selected clients.
        alphas: for each round with a choice of a block scheduler, each client's number of blocks.
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
    """The training recorded in an ``events.parquet``.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        table = pq.read_table(
            path, columns=["kind", "round", "client", "item", "value", "detail"], page_checksum_verification=True
        )
        rows = table.filter(pc.is_in(table["kind"].cast(pa.string()), value_set=pa.array(_WANTED))).to_pylist()
        return _read(rows)
    except (OSError, pa.ArrowException, *DAMAGED) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"the log cannot be read: {reason}", file=str(path)) from None


def recording_of(events: Iterable[Event]) -> Recording:
    """The training recorded in the rows of a log, which may end in the middle of a run.

    Raises:
        ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError: the rows are damaged.
    """
    return _read(event._asdict() for event in events if event.kind in _WANTED)


class _Reader:
    """Adds the rows of a log to a recording, one by one, in their order."""

    def __init__(self) -> None:
        self.recording = Recording()
        self._dispatches: dict[tuple[int, int], int] = {}
        self._done: dict[int, int] = {}
        self._pending: list[tuple[int, int]] = []

    def read(self, row: Mapping[str, Any]) -> None:
        """Add one row."""
        round, client = row["round"] - 1, row["client"]
        facts = json.loads(row["detail"]) if row["detail"] else {}
        match row["kind"]:
            case "transfer_start" if client >= 0:
                self._dispatches[client, round] = facts["dispatch"]
            case "compute_start" | "compute_end" | "compute_partial":
                self._job(row, (client, self._dispatches[client, round]))
            case "aggregation":
                self._aggregation(round, facts)
            case "feedback":
                self._feedback(client, facts)
            case "decision":
                _note_decision(self.recording, round, row["item"], facts)
            case _:
                self._of_the_server(row, facts)

    def _job(self, row: Mapping[str, Any], job: tuple[int, int]) -> None:
        jobs = self.recording.jobs
        if row["kind"] == "compute_start":
            alpha = _ALPHA.search(row["item"])
            jobs[job] = TrainedJob(row["round"] - 1, int(alpha[1]) if alpha else -1, None, self._done.get(job[0]))
        else:
            jobs[job] = jobs[job]._replace(steps=int(row["value"]))
            self._done[job[0]] = job[1]

    def _aggregation(self, round: int, facts: Mapping[str, Any]) -> None:
        jobs = list(zip(facts["clients"], facts["dispatches"], strict=True))
        self.recording.aggregated[round] = jobs
        self._pending = jobs[::-1]
        if "model" in facts:
            self.recording.digests[round + 1] = Digests(facts["before"], facts["model"])

    def _feedback(self, client: int, facts: Mapping[str, Any]) -> None:
        # The rows follow their aggregation in its order; a client may have several jobs in it.
        job = self._pending.pop()
        if job[0] != client:
            raise ValueError(f"feedback of client {client} without an aggregated job")
        self.recording.feedback[job] = Feedback(**dict(_floats(facts)))

    def _of_the_server(self, row: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        recording = self.recording
        match row["kind"]:
            case "run" if "model" in facts:
                recording.digests[0] = Digests("", facts["model"])
            case "evaluation":
                numbers = {name: value for name, value in facts.items() if name not in ("ema", "model")}
                found = Evaluation(**dict(_floats(numbers)), model=facts.get("model", ""))
                recording.evaluations[row["round"]] = found
            case "diverged":
                recording.diverged = (row["round"] - 1, str(facts["reason"]))
            case "stop":
                recording.reason = row["item"]


def _read(rows: Iterable[Mapping[str, Any]]) -> Recording:
    reader = _Reader()
    for row in rows:
        reader.read(row)
    return reader.recording


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
