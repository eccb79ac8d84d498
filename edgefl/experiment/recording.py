"""The jobs and numbers of training in a run's log, with which a simulation can run again without training."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from edgefl.record.events import Event, WorkKey
from edgefl.record.kinds import EventKind
from edgefl.record.tables import read_events
from edgefl.training.faults import Diverged
from edgefl.training.job import Digests, Evaluation, Feedback, JobId, Mixing, PeerMixing, TrainingJob

TIMELESS = frozenset({"loss", "distance", "samples", "label_support", "data_sizes", "local_losses"})
"""Inputs of decisions that are equal on every network and fleet; all other inputs depend on time."""

_WANTED: tuple[EventKind, ...] = (
    *("run", "decision", "work", "compute_start", "compute_end", "compute_partial"),
    *("aggregation", "feedback", "evaluation", "diverged", "stop"),
)


Key = TypeVar("Key")
Number = TypeVar("Number")


class TrainedJob(NamedTuple):
    """A job that a client began to train in a round (from 0); ``steps`` are ``None`` if it was aborted.

    ``previous`` is the client's last completed job before this one, whose client state it continued if the method has
    one, and ``front`` the model version that its client was broadcast since then, if it continued from it.
    """

    round: int
    alpha: int
    steps: int | None
    previous: int | None
    level: int = 0
    front: int | None = None


@dataclass
class Recording:
    """The training of one run; jobs are (client, dispatch), rounds count from 0, model versions are rounds done.

    ``aggregated`` has the jobs in the next model by round, ``missing`` the messages between peers (sender, receiver)
    that did not arrive; ``diverged`` the round in which a number was not finite, and
    the message. ``evaluations`` and ``digests`` are empty without training. ``untrained`` says why a replay that had no
    further training ended. ``timed`` are decisions that depended on time, as (round, name, inputs); ``local_losses``
    those that clients were asked for, by model version and client; ``alphas`` the choices of a block scheduler;
    ``levels`` the capacity level of each kind of work, where it is not 0.
    """

    jobs: dict[tuple[int, int], TrainedJob] = field(default_factory=dict)
    aggregated: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    missing: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    feedback: dict[tuple[int, int], Feedback] = field(default_factory=dict)
    evaluations: dict[int, Evaluation] = field(default_factory=dict)
    diverged: tuple[int, str] | None = None
    digests: dict[int, Digests] = field(default_factory=dict)
    reason: str = ""
    untrained: str = ""
    timed: list[tuple[int, str, list[str]]] = field(default_factory=list)
    cohorts: dict[int, list[int]] = field(default_factory=dict)
    local_losses: dict[tuple[int, int], float] = field(default_factory=dict)
    alphas: dict[int, dict[int, int]] = field(default_factory=dict)
    levels: dict[WorkKey, int] = field(default_factory=dict)


def read_recording(path: Path) -> Recording:
    """The training recorded in an ``events.parquet``."""
    return recording_of(read_events(path, _WANTED))


def recording_of(events: Iterable[Event]) -> Recording:
    """The training recorded in the rows of a log, which may end in the middle of a run."""
    recording = Recording()
    done: dict[int, int] = {}
    for event in events:
        if event.kind in _WANTED:
            _note(recording, event, event.round - 1, done)
    return recording


def _note(recording: Recording, event: Event, round: int, done: dict[int, int]) -> None:
    """Add a row; ``done`` is the number of each client's last job that was computed to its end."""
    facts = event.facts
    match event.kind:
        case "run" if "model" in facts:
            recording.digests[0] = Digests("", facts["model"])
        case "work" if facts.get("level"):
            recording.levels[event.work] = facts["level"]
        case "compute_start":
            previous, level = done.get(event.client), recording.levels.get(event.work, 0)
            recording.jobs[event.job] = TrainedJob(round, event.alpha, None, previous, level, facts.get("front"))
        case "compute_end" | "compute_partial":
            recording.jobs[event.job] = recording.jobs[event.job]._replace(steps=int(event.value))
            done[event.client] = event.dispatch
        case "aggregation":
            recording.aggregated[round] = list(zip(facts["clients"], facts["dispatches"], strict=True))
            recording.missing[round] = [(sender, receiver) for sender, receiver in facts.get("missing", ())]
            if "model" in facts:
                recording.digests[event.round] = Digests(facts["before"], facts["model"])
        case "feedback":
            recording.feedback[event.job] = Feedback(**_floats(facts))
        case "evaluation":
            numbers = {name: value for name, value in facts.items() if name not in ("ema", "model")}
            recording.evaluations[event.round] = Evaluation(**_floats(numbers), model=facts.get("model", ""))
        case "decision":
            _note_decision(recording, round, event.item, facts)
        case "diverged":
            recording.diverged = (round, str(facts["reason"]))
        case "stop":
            recording.reason, recording.untrained = event.item, facts.get("reason", "")


def _note_decision(recording: Recording, round: int, what: str, facts: Mapping[str, Any]) -> None:
    timed = sorted(set(facts["reads"]) - TIMELESS)
    if timed:
        recording.timed.append((round, what, timed))
    if what == "selection":
        recording.cohorts[round] = facts["clients"]
    elif what == "asked":
        for client, loss in facts["local_losses"].items():
            recording.local_losses[round, int(client)] = float(loss)
    elif what == "blocks":
        recording.alphas[round] = {int(client): alpha for client, alpha in facts["alphas"].items()}


def _floats(facts: Mapping[str, Any]) -> dict[str, Any]:
    # In the log, numbers that are not finite are text.
    return {name: float(value) for name, value in facts.items()}


class RecordedLearner:
    """A :class:`~edgefl.training.job.Learner` of recorded numbers; ``missing`` makes the error if one is lacking."""

    def __init__(self, recording: Recording, method: str, missing: Callable[[str], Exception]) -> None:
        self._recording, self._method, self._missing = recording, method, missing

    def submit(self, job: TrainingJob) -> None:
        """Ignore the job: its results are recorded."""

    def received(self, client: int, version: int) -> None:
        """Ignore the broadcast."""

    def discard(self, job: JobId) -> None:
        """Ignore the end of the job."""

    def aggregate(self, version: int, jobs: list[JobId], round: int, mixing: Mixing | PeerMixing | None = None) -> int:
        diverged = self._recording.diverged
        if diverged is not None and diverged[0] == round:
            raise Diverged(self._method, round, Diverged.reason_in(diverged[1]))
        self._found(self._recording.aggregated, round, f"aggregation of round {round + 1}")
        return version + 1

    def digests(self, version: int) -> Digests | None:
        return self._recording.digests.get(version)

    def feedback(self, job: JobId) -> Feedback:
        name = f"feedback of job {job.dispatch} of client {job.client}"
        return self._found(self._recording.feedback, (job.client, job.dispatch), name)

    def local_losses(self, version: int, clients: Sequence[int], images: int | None) -> list[float]:
        known, name = self._recording.local_losses, f"loss of version {version} on client"
        return [self._found(known, (version, client), f"{name} {client}") for client in clients]

    def evaluate(self, version: int) -> Evaluation:
        return self._found(self._recording.evaluations, version, f"evaluation of version {version}")

    def _found(self, known: Mapping[Key, Number], key: Key, name: str) -> Number:
        if key not in known:
            raise self._missing(name)
        return known[key]
