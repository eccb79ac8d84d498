"""A finished run, ready to be executed again with its own numbers instead of training."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from edgefl.errors import UserError, nearest
from edgefl.experiment.inputs import DATA, SCENARIO, Inputs, allow_code, check_inputs, digests, scenario_as_written
from edgefl.experiment.recording import RecordedLearner, Recording, read_recording
from edgefl.experiment.wiring import (
    SharedWorld,
    client_links_of,
    reads_labels,
    setup_of,
    step_costs,
    world_for,
    world_of,
)
from edgefl.flower.scenario import app_scenario_of
from edgefl.record import RunPaths
from edgefl.record.costs import read_costs
from edgefl.record.summary import read_run
from edgefl.scenario import Scenario, load_scenario
from edgefl.simulation.setup import Setup
from edgefl.training.faults import NotTrained
from edgefl.training.job import JobId, Mixing, NeutralLearner, PeerMixing, TrainingJob
from edgefl.wording import listed


class ReplayedLearner(RecordedLearner):
    """Answers from a recording; raises :class:`NotTrained` if something else would be trained, or more.

    If clients are ``stateful``, a job depends on the client's jobs before it.
    """

    def __init__(self, recording: Recording, method: str, *, stateful: bool) -> None:
        super().__init__(recording, method, lambda name: NotTrained(f"the finished run has no {name}"))
        self._stateful = stateful
        self._submitted: dict[tuple[int, int], TrainingJob] = {}
        self._same: set[tuple[int, int]] = set()

    def submit(self, job: TrainingJob) -> None:
        self._submitted[job.id.client, job.id.dispatch] = job

    def aggregate(self, version: int, jobs: list[JobId], round: int, mixing: Mixing | PeerMixing | None = None) -> int:
        """Check that these jobs, from the models that they began with, were aggregated in the finished run."""
        known, diverged = self._recording.aggregated.get(round), self._recording.diverged
        here = sorted((id.client, id.dispatch) for id in jobs)
        if known is None and not (diverged and diverged[0] == round):
            raise NotTrained(f"the finished run ended by '{self._recording.reason}' in round {round + 1}")
        if known is not None and sorted(known) != here:
            clients = ", ".join(str(client) for client, _ in sorted(known)) or "none"
            others = ", ".join(str(client) for client, _ in here) or "none"
            raise NotTrained(f"in round {round + 1} clients {clients} were aggregated, here it would be {others}")
        if isinstance(mixing, PeerMixing) and list(mixing.missing) != self._recording.missing.get(round, []):
            raise NotTrained(f"in round {round + 1} other models would have reached their peers")
        for job in here:
            self._check(job, round)
        return super().aggregate(version, jobs, round, mixing)

    def _check(self, key: tuple[int, int], round: int) -> None:
        """Check that a job, and all jobs that its client's state depends on, were trained in the finished run."""
        while key not in self._same:
            job, known = self._submitted[key], self._recording.jobs.get(key)
            previous = None if job.previous is None else job.previous.dispatch
            if (
                known is None
                or (known.round, known.alpha, known.level) != (job.round, job.alpha, job.level)
                or (known.steps or job.steps) != job.steps
                or known.front != job.front
                or (self._stateful and known.previous != previous)
            ):
                raise NotTrained(f"client {key[0]} would train differently in round {round + 1}")
            self._same.add(key)
            if not self._stateful or previous is None:
                return
            key = (key[0], previous)


class FinishedRun:
    """The scenario, the training and the step costs of a run directory, for some of its methods or all.

    ``entries`` are those of the summary, one for each seed, by label; ``software`` the packages on which the training
    depended.
    """

    def __init__(self, path: Path, methods: Sequence[str] | None = None, *, trust: bool = False) -> None:
        self.path = path
        self.paths = RunPaths(path)
        summary = read_run(path)[1]
        if app_scenario_of(path) is not None:
            raise UserError(
                "a run of a Flower app cannot be replayed, because its clients' replies are not kept: simulate it "
                f"again, with edgefl simulate {self.paths.scenario} --set PATH=VALUE --out FOLDER",
                file=str(path),
            )
        self.entries = summary.methods
        self.software = summary.software
        self._known_inputs = summary.inputs
        for label in methods or ():
            if label not in self.entries:
                raise UserError(f"the run has no method '{label}'; {nearest(label, self.entries)}", file=str(path))
        self.labels = [label for label in self.entries if not methods or label in methods]
        self.seeds = list(dict.fromkeys(entry.seed for label in self.labels for entry in self.entries[label]))
        self.scenario = load_scenario(self.paths.scenario, run_code=False)
        self.scenario = allow_code(self.scenario, summary.inputs, path, trust=trust)
        self._files = Inputs(self.scenario, path).files
        check_inputs(summary.inputs, scenario_as_written(path))
        if (option := self.scenario.protocol.by_arrival()) is not None:
            decided = f"with protocol.{option} the aggregated updates depend on arrival times"
            raise UserError(f"{decided}, so the run cannot be replayed: simulate it instead", file=str(path))
        steps = read_costs(self.paths.costs)
        for label in self.labels:
            if label not in steps:
                raise UserError(f"expected the steps of '{label}', found none", file=str(self.paths.costs))
        self.costs = step_costs(self.scenario, self.labels, steps, trains=summary.has_trained)

    def inputs(self, scenario: Scenario) -> dict[str, str]:
        """The digests of a replay's inputs under this scenario, and of the run's training inputs."""
        inputs = Inputs(scenario, self.path)
        found = inputs.now(trains=any(reads_labels(scenario, seed) for seed in self.seeds))
        shared = {field for field in found if inputs.files.get(field) == self._files.get(field)} - {SCENARIO}
        check_inputs(self._known_inputs, {field: found[field] for field in shared})
        trained_on = {DATA: self._known_inputs[DATA]} if DATA in self._known_inputs else {}
        return digests(found) | trained_on

    def recordings(self, label: str, *, untrained: bool = False) -> dict[int, Recording]:
        """The recorded training of a method by seed; UserError if one cannot be replayed.

        ``untrained`` accepts a run after ``--no-train``.
        """
        found = {each.seed: read_recording(self.paths.of(label, each.seed).events) for each in self.entries[label]}
        for seed, recording in found.items():
            if recording.reason == "fault" or not (recording.evaluations or untrained):
                what = "a fault ended it" if recording.reason == "fault" else "it has no training"
                message = f"{what}, so there is nothing to replay"
                raise UserError(message, file=str(self.path), field=f"{label}, seed {seed}")
        return found

    @cached_property
    def worlds(self) -> dict[int, SharedWorld]:
        """The devices, links and shards of each seed."""
        return {seed: world_of(self.scenario, seed) for seed in self.seeds}

    def learner(self, label: str, recording: Recording) -> ReplayedLearner:
        """A learner that answers from the recorded training of a method."""
        return ReplayedLearner(recording, label, stateful=self.costs[label].method.state is not None)

    def setup(self, label: str, seed: int, recording: Recording, scenario: Scenario | None = None) -> Setup:
        """What simulates one method with one seed again; no budget ends it, and it writes nothing.

        Without recorded training, placeholders stand for its numbers. ``scenario`` is the run's, with other links.
        """
        world, costs = self.worlds[seed], self.costs[label]
        if scenario is not None:
            world = replace(world, links=client_links_of(scenario, world.fleet, seed))
        own, world = world_for(scenario or self.scenario, world, costs.method)
        learner = self.learner(label, recording) if recording.evaluations else NeutralLearner()
        setup = setup_of(own, self.scenario.method(label), world, costs, learner=learner, trains=False, listeners=())
        return replace(setup, stop="rounds")


def timed_decision(recordings: Iterable[Recording]) -> str | None:
    """The first decision of a method that read a time, in words; ``None`` if it can be replayed."""
    timed = (decision for each in recordings for decision in each.timed)
    return next((f"its decision on {what} in round {n + 1} read {listed(reads)}" for n, what, reads in timed), None)
