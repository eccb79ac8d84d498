"""Run or resume all methods and seeds of a scenario, and write the run directory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from copy import copy
from functools import partial
from pathlib import Path

from edgefl.data.attackers import Attackers
from edgefl.data.federated import FederatedData
from edgefl.errors import EdgeflError, UserError
from edgefl.experiment import extended_run
from edgefl.experiment.directory import Choices, RunDirectory, check_finished
from edgefl.experiment.inputs import Inputs, allow_code, software_of
from edgefl.experiment.journal import LogDiffers
from edgefl.experiment.one_run import MakeTestbed, OneRun
from edgefl.experiment.precision_advice import precision_advice
from edgefl.experiment.step_costs import StepCosts
from edgefl.experiment.wiring import SharedWorld, data_of, reads_labels, shared_world, step_costs, world_for
from edgefl.fleet.figure import value
from edgefl.hardware import DeviceName
from edgefl.record.costs import StepKey, StepRow, write_costs
from edgefl.record.events import Listener, ListenerError, marked
from edgefl.record.figures import Quantity
from edgefl.record.paths import RunPaths, how_to_continue, is_interrupted
from edgefl.record.rounds import RoundRow
from edgefl.record.summary import SeedResult, write_summary
from edgefl.scenario import Scenario, load_scenario, with_overrides
from edgefl.scenario.overrides import Overrides, of_engine
from edgefl.scenario.rehearsal import check_last_batches
from edgefl.torch_settings import neutral_torch
from edgefl.training.accelerator import room_for_data
from edgefl.training.core import TrainingCore
from edgefl.training.engine_spec import EngineWrapper, choose_device
from edgefl.training.engines.parallel import begin_workers
from edgefl.training.faults import PartFault
from edgefl.validation import validated
from edgefl.wording import grouped, without_method

MOST_NEW_SEEDS = 1000
"""Seeds that are added at a time; comparisons are planned up to it, and a larger number is a mistake."""


class RunsFailed(EdgeflError):  # noqa: N818  (what it says of the runs)
    """Some runs ended by ``faults`` of their methods, by label and seed; ``resumable``: these can be tried again."""

    def __init__(self, path: Path, runs: int, faults: Mapping[tuple[str, int], str], *, resumable: bool = True) -> None:
        self.path = path
        self.messages = [f"{label}, seed {seed}: {message}" for (label, seed), message in faults.items()]
        kept = "" if len(faults) == runs else f"; the others are complete in {path}"
        again = f"; once the code is fixed, {how_to_continue(path)} tries again"
        hint = f"{again}; a changed scenario needs a new run" if resumable else ""
        super().__init__(f"{len(faults)} of {runs} runs ended by a fault: {'; '.join(_shared(faults))}{kept}{hint}")


def _shared(faults: Mapping[tuple[str, int], str]) -> list[str]:
    """The messages of runs, each once.

    >>> _shared({("a", 0): "method 'a', round 1: no", ("b", 0): "method 'b', round 1: no"})
    ['a, seed 0; b, seed 0: round 1: no']
    """
    groups = grouped((without_method(message, run[0]), run) for run, message in faults.items())
    return [
        f"{'; '.join(f'{label}, seed {seed}' for label, seed in runs)}: {cause if len(runs) > 1 else faults[runs[0]]}"
        for cause, runs in groups.items()
    ]


class NotWritten(EdgeflError):  # noqa: N818  (what it says of the run)
    """The run directory could no longer be written, for example because the disk is full."""

    def __init__(self, path: Path, error: OSError) -> None:
        self.path = path
        hint = f"; finished work is kept; to continue: {how_to_continue(path)}" if is_interrupted(path) else ""
        super().__init__(f"{path} cannot be written: {error.strerror or error}{hint}")


def run(
    scenario: Scenario,
    *,
    out: Path,
    methods: Sequence[str] | None = None,
    device: str = "auto",
    engine: str | None = None,
    train: bool = True,
    listeners: Sequence[Listener] = (),
    testbed: MakeTestbed | None = None,
    wrapper: EngineWrapper | None = None,
) -> Path:
    """Run the scenario's methods with each of its seeds, and write a run directory.

    Args:
        scenario: the scenario.
        out: the run directory; created if it does not exist. It must be empty: nothing is overwritten.
        methods: labels of the methods to run; all of them if not given.
        device: ``auto``, ``cpu`` or ``cuda``: where training runs.
        engine: ``auto`` or an engine's name, in place of the scenario's ``training.engine.kind``.
        train: ``False`` simulates only the system, with placeholder numbers in place of training.
        listeners: follow all runs, in this order.
        testbed: makes the real links of each run; computed ones if not given.
        wrapper: what takes the place of each engine.

    Returns:
        The run directory.

    Raises:
        UserError: data files are missing, an argument is invalid, ``out`` is not empty or another process uses it;
            nothing is written or removed.
        RunsFailed: a part of a method raised an error; the directory is complete and contains the error.
        NotWritten: files could not be written, for example on a full disk; the run can be resumed.
    """
    labels = [method.label for method in scenario.methods] if methods is None else list(methods)
    chosen = [scenario.method(label).label for label in labels]
    options = {"methods": chosen, "device": device, "train": train, "emulated": testbed is not None}
    choices = validated(Choices, options)
    if engine is not None:
        scenario = with_overrides(scenario, of_engine(engine))
    with RunDirectory(out.absolute(), choices) as directory, neutral_torch():
        return _ScenarioRuns(scenario, directory, listeners, testbed=testbed, wrapper=wrapper).execute()


def resume(path: Path, *, listeners: Sequence[Listener] = (), trust: bool = False) -> Path:
    """Resume an interrupted run; the result is identical byte for byte to that of an uninterrupted run.

    In a finished directory, runs that failed because of a part of their method start again; once the part is fixed, the
    result is that of a directory in which no run failed. Listeners also follow rounds that are only re-executed. With
    ``trust``, the scenario's Python files are executed even if they are not those that the run began with.

    Raises:
        UserError: there is no interrupted run, another process uses it, or an input has changed.
        LogDiffers: re-execution gives other results than the run's journal contains (with another build of torch, for
            example).
        RunsFailed, NotWritten: as for :func:`run`.
    """
    path = path.absolute()
    if not RunPaths(path).longer.exists():
        return _continue(RunDirectory(path, None), path, listeners, trust=trust)
    with extended_run.locked(path):
        _finish_longer(path, listeners, trust=trust)
    return path


def go_on(
    path: Path,
    changes: Overrides = (),
    *,
    new_seeds: int | None = None,
    device: DeviceName = "auto",
    listeners: Sequence[Listener] = (),
    trust: bool = False,
) -> Path:
    """Go on with a finished run; the result is identical byte for byte to that of a run with the changes.

    ``changes`` are a larger number ``training.rounds``, larger ``budgets`` or ``stop: rounds``. Training goes on from
    the checkpoint that the run kept, or else starts again. With ``new_seeds``, as many whole numbers after the highest
    seed are added instead, and the present runs are not executed again. The finished run stays readable until all runs
    are done. If it is interrupted, :func:`resume` continues. ``device`` should be that of the present run; ``trust`` is
    as for :func:`resume`.

    Raises:
        UserError: the run cannot go on with these changes.
        RunsFailed, NotWritten: as for :func:`run`.
    """
    if new_seeds is not None and not 1 <= new_seeds <= MOST_NEW_SEEDS:
        raise UserError(f"expected 1 to {MOST_NEW_SEEDS} new seeds, found {new_seeds}", file="--add-seeds")
    path = path.absolute()
    check_finished(path)
    with extended_run.locked(path):
        advice = extended_run.begin(path, changes, new_seeds or 0, device, trust=trust)
        for listener in listeners if advice else ():
            listener.advised(advice)
        try:
            _finish_longer(path, listeners, trust=trust)
        except UserError:
            extended_run.forget(path)
            raise
    return path


def _finish_longer(path: Path, listeners: Sequence[Listener], *, trust: bool) -> None:
    folder = RunPaths(path).longer
    if is_interrupted(folder) or RunPaths(folder).faulted.exists():
        try:
            _continue(RunDirectory(folder, None), folder, listeners, trust=trust)
        except LogDiffers:
            # The end of the finished run was foreseen, as where clients of the next rounds are picked in advance.
            extended_run.restart(path)
            for listener in listeners:
                listener.advised("the end of the finished run changed its earlier rounds: it is trained from its start")
            _continue(RunDirectory(folder, None), folder, listeners, trust=trust)
    extended_run.adopt(path)


def _continue(directory: RunDirectory, path: Path, listeners: Sequence[Listener], *, trust: bool) -> Path:
    with directory:
        scenario = load_scenario(directory.paths.scenario, run_code=False)
        if directory.choices.emulated:
            raise UserError(f"is an emulation; to continue: {how_to_continue(path)}", file=str(path))
        scenario = allow_code(scenario, directory.inputs, path, trust=trust)
        with neutral_torch():
            return _ScenarioRuns(scenario, directory, listeners).execute()


class Runs(Listener):
    """Executes the unfinished runs of a directory in turn; ``fault`` is the error of a part that ended one."""

    figures: Sequence[Quantity] = ()
    """The user's quantities that they charge."""
    resumable = True
    """Whether runs that ended by a fault can be tried again in the directory."""

    def __init__(
        self, directory: RunDirectory, listeners: Sequence[Listener], *, name: str, seeds: Sequence[int], rounds: int
    ) -> None:
        self.directory = directory
        self.listeners = [self, *map(marked, listeners)]
        self.fault: PartFault | None = None
        self._name, self._seeds, self._rounds = name, seeds, rounds
        self._rounds_ended = 0

    def round_ended(self, row: RoundRow) -> None:
        self._rounds_ended += 1

    def prepare(self, runs: int) -> None:
        """So many runs follow."""

    @abstractmethod
    def run_seed(self, seed: int, labels: Sequence[str]) -> None:
        """Run these methods with one seed; each within :meth:`one`."""

    @abstractmethod
    def costs(self) -> dict[str, list[StepRow]]:
        """The steps of each method, for ``costs.json``."""

    def one(self, label: str, seed: int, run: Callable[[], tuple[SeedResult, Iterable[StepKey]]]) -> None:
        """Execute one run, which returns its entry and the keys of its step costs."""
        for listener in self.listeners:
            listener.run_began(label, seed)
        entry, costs = run()
        self.directory.run_finished(label, seed, entry, costs)
        for listener in self.listeners:
            listener.run_ended(entry)

    def execute(self) -> Path:
        """Execute what is left, and write the summary; see :func:`edgefl.experiment.run` for its errors."""
        directory = self.directory
        try:
            self._execute()
        except ListenerError as failure:
            raise failure.error from failure.error.__cause__
        except UserError:
            if not self._rounds_ended:
                directory.forget()
            raise
        except OSError as error:
            if not directory.opened:
                raise
            raise NotWritten(directory.path, error) from error
        ended = {run: known.entry for run, known in directory.finished.items()}
        faults = {run: entry.stop.message or "" for run, entry in ended.items() if entry.faulted}
        if faults:
            raise RunsFailed(directory.path, len(ended), faults, resumable=self.resumable) from self.fault
        return directory.path

    def _execute(self) -> None:
        directory, labels = self.directory, self.directory.choices.methods
        runs = [(label, seed) for seed in self._seeds for label in labels]
        left = [run for run in runs if run not in directory.finished]
        for listener in self.listeners:
            listener.began(left, self._rounds)
        self.prepare(len(left))
        for seed in self._seeds:
            if chosen := [label for label in labels if (label, seed) in left]:
                self.run_seed(seed, chosen)
        entries = {label: [directory.finished[label, seed].entry for seed in self._seeds] for label in labels}
        write_costs(self.costs(), directory.paths.costs)
        paths, inputs, software = directory.paths, directory.inputs, directory.software
        write_summary(self._name, entries, paths.summary, inputs, software, figures=self.figures)
        directory.all_finished()


class _ScenarioRuns(Runs):
    """The runs of a scenario; those of one seed share data, initial model and evaluations."""

    def __init__(
        self,
        scenario: Scenario,
        directory: RunDirectory,
        listeners: Sequence[Listener],
        *,
        testbed: MakeTestbed | None = None,
        wrapper: EngineWrapper | None = None,
    ) -> None:
        rounds = scenario.training.rounds
        super().__init__(directory, listeners, name=scenario.name, seeds=scenario.seeds, rounds=rounds)
        self._testbed, self._wrapper = testbed, wrapper
        self._chosen, self.figures = scenario, scenario.quantities
        self._choices = directory.choices
        self._inputs = Inputs(scenario, directory.path)
        if self._choices.train:
            jobs = rounds * scenario.training.cohort * len(self._choices.methods) * len(scenario.seeds)
            packages = getattr(scenario.model.spec, "packages", ())
            begin_workers(jobs, scenario.training.engine.kind, self._choices.device, packages)
        self._check_inputs()
        directory.use_software(software_of(scenario))
        self._costs = step_costs(scenario, self._choices.methods, trains=self._choices.train)
        for (label, _), known in directory.finished.items():
            for key in known.costs:
                self._costs[label].step(*key)

    def prepare(self, runs: int) -> None:
        if not (self._choices.train and runs):
            return
        if (advice := precision_advice(self._chosen, self._choices.device)) is not None:
            for listener in self.listeners:
                listener.advised(advice)

    def run_seed(self, seed: int, labels: Sequence[str]) -> None:
        self._check_inputs()
        device, data = choose_device(self._choices.device), None
        if self._choices.train or reads_labels(self._chosen, seed):
            data = data_of(self._chosen, seed, device, room_for_data(device))
        world = shared_world(self._chosen, seed, data)
        costs = [self._costs[label] for label in labels]
        check_last_batches(costs[0].model, [each.method for each in costs], world.samples)
        for advice in self._untrainable(world, labels) if seed == self._seeds[0] else ():
            for listener in self.listeners:
                listener.advised(advice)
        self.directory.open(self._chosen)
        with self._core(seed, data) as core:
            for label, cost in zip(labels, costs, strict=True):
                self._check_inputs()
                self.one(label, seed, partial(self._run, label, world, cost, core, data))

    def _run(
        self, label: str, world: SharedWorld, costs: StepCosts, core: TrainingCore | None, data: FederatedData | None
    ) -> tuple[SeedResult, Iterable[StepKey]]:
        method, paths, listeners = self._chosen.method(label), self.directory.paths, self.listeners
        one = OneRun(self._chosen, method, world, costs, paths, listeners=listeners, testbed=self._testbed)
        entry = one.timed() if core is None or data is None else one.trained(core, data)
        self.fault = self.fault or one.fault
        return entry, sorted(costs.used)

    def costs(self) -> dict[str, list[StepRow]]:
        return {label: each.rows() for label, each in self._costs.items()}

    def _check_inputs(self) -> None:
        trains = self._choices.train or reads_labels(self._chosen, self._chosen.seeds[0])
        self.directory.read_inputs(self._inputs.now(trains=trains))

    def _core(self, seed: int, data: FederatedData | None) -> AbstractContextManager[TrainingCore | None]:
        if data is None or not self._choices.train:
            return nullcontext()
        spec, engine = self._chosen.model.spec, self._chosen.training.engine
        attackers = Attackers.of(self._chosen.failures, self._chosen.data.clients, seed)
        return TrainingCore.of(data, spec, seed, engine=engine, wrapper=self._wrapper, attackers=attackers)

    def _untrainable(self, world: SharedWorld, labels: Sequence[str]) -> Iterator[str]:
        """A sentence for each method of which no device has the memory for even the smallest local step."""
        for label, costs in ((label, copy(self._costs[label])) for label in labels):
            costs.used, method = {}, costs.method  # what is asked here does not count as used
            there = world_for(self._chosen, world, method)[1]
            blocks = costs.model.depth if self._chosen.method(label).recipe.scheduler is None else 1
            size = min(method.local.step_samples, max(1, int(there.samples.min())))
            largest = max(there.fleet.profiles, key=lambda profile: value(profile.memory.training))
            has, key = value(largest.memory.training), (blocks, size, 0, largest.backend)
            with suppress(Exception, SystemExit):  # its run reports a fault of a method
                if not method.submodels and (needs := costs.step(*key).peak_memory_bytes) > has:
                    yield f"{label}: no device can train it ({needs / 1e6:.4g} MB needed, {has / 1e6:.4g} MB at most)"
