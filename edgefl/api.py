"""The commands as functions: simulate a scenario, plan it, sweep it, replay a run, and look at runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from edgefl.errors import EdgeflError, Note, UserError
from edgefl.experiment import look_free, run
from edgefl.experiment import resume as resume_run
from edgefl.experiment.directory import Choices, lock, same_run
from edgefl.experiment.inputs import Inputs, check_inputs
from edgefl.files import user_path
from edgefl.flower.run import inputs_of
from edgefl.flower.run import resume as resume_apps
from edgefl.flower.run import run as run_apps
from edgefl.flower.scenario import AppScenario, load_any_scenario
from edgefl.hardware import DeviceName, EngineKind
from edgefl.record import RunPaths
from edgefl.record.events import Listener
from edgefl.record.metric import ACCURACY
from edgefl.record.names import OWN, SEED
from edgefl.record.summary import read_run
from edgefl.report import RunResult, RunResults
from edgefl.report.progress import Progress, Said, live_stream
from edgefl.scenario import Scenario, load_scenario, rehearse, with_overrides
from edgefl.scenario.overrides import Overrides, of_engine
from edgefl.validation import validated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from edgefl.planning.compare_schedulers import SchedulerComparison
    from edgefl.planning.observation import Plan
    from edgefl.planning.training_time import OnDevice

Named = Scenario | str | PathLike[str]
"""A scenario, the path of its file, or the name of a shipped one."""

Run = RunResult | str | PathLike[str]
"""A finished run, or its folder."""

_OTHER = "choose another folder, or write overwrite=True to remove a run"
_TEMPORARY: list[TemporaryDirectory[str]] = []
"""Folders that are removed when Python ends."""


def simulate(
    scenario: Named,  # a file may run a Flower app; then device, engine and train cannot be given
    *,
    # the run directory; if not given, a temporary folder that is removed when Python ends
    out: str | PathLike[str] | None = None,
    overrides: Overrides = (),  # changes by path, {"training.rounds": 20} or ["training.rounds=20"]
    methods: Sequence[str] | None = None,  # labels of the methods to run; all if not given
    device: DeviceName = "auto",  # where training runs
    engine: EngineKind | None = None,  # how training runs; the scenario's training.engine if not given
    train: bool = True,  # false simulates only devices and network, without accuracies
    listeners: Sequence[Listener] = (),  # follow the runs; see Listener
    # a line in a terminal or a notebook; or a function that gets plain lines, such as logging.info
    progress: Said = True,
    # if out has the same run already: continue it, or return it if it is finished. Another run is never overwritten.
    resume: bool = True,
    overwrite: bool = False,  # remove the run that out has
) -> RunResult:
    """Run a scenario and return its results.

    >>> few = {"training.rounds": 2, "seeds": [0]}
    >>> run = simulate("5g_10clients", overrides=few, methods=["fedavg"], train=False)
    >>> run.rounds["round"].to_pylist()
    [1, 2]

    Raises:
        UserError: something in the scenario or the arguments is wrong, or ``out`` has other files or another run.
        edgefl.experiment.RunsFailed: a part of a method raised an error. ``out`` is complete nevertheless: the other
            methods continued, and ``RunResult(out)`` contains the rounds that the failed run completed.
        edgefl.experiment.NotWritten: a file cannot be written, for example because the disk is full.
    """
    folder = _folder(out)
    found = _loaded(scenario, overrides) if isinstance(scenario, Scenario) else load_any_scenario(scenario, overrides)
    if isinstance(found, AppScenario):
        for name, given in (("train", not train), ("engine", engine is not None), ("device", device != "auto")):
            if given:
                raise UserError("a Flower app trains in its own code; remove this argument", field=name)
        device = "cpu"
    elif engine is not None:
        found = with_overrides(found, of_engine(engine))
    if overwrite:
        _remove_run(folder)
    labels = [each.label for each in found.methods] if methods is None else list(methods)
    begin = _begun(found, folder, {"methods": labels, "device": device, "train": train}) if resume else None
    if begin is None:
        look_free(folder, hint=_OTHER)
        if isinstance(found, AppScenario):
            begin = partial(run_apps, found, out=folder, methods=methods)
        else:
            rehearse(found, overrides=overrides, trains=train)
            begin = partial(run, found, out=folder, methods=methods, device=device, train=train)
    shown = Progress.said(progress, lambda: found.task.measured if isinstance(found, Scenario) else ACCURACY)
    try:
        begin(listeners=[*listeners, *shown])
    finally:
        for each in shown:
            each.clear()
    return RunResult(folder)


def plan(
    scenario: Named,
    overrides: Overrides = (),
    *,
    methods: Sequence[str] | None = None,  # labels; all if not given
    rounds: int | None = None,  # to simulate for each method
    seed: int | None = None,  # the scenario's first if not given
) -> Plan:
    """What a round of each method costs on each device, and how many rounds budgets allow, without training.

    >>> planned = plan("5g_10clients", methods=["fedavg"], rounds=2)
    >>> planned.methods[0].label, planned.methods[0].devices[0].refused
    ('fedavg', 0)
    """
    from edgefl.planning.planning import plan as make

    return make(_loaded(scenario, overrides), methods=methods, rounds=rounds, seed=seed)


def price_steps(
    model: str,  # as in a scenario: cnn, or "{torchvision: mobilenet_v2}"
    on: Sequence[str],  # devices: names or files of profiles
    *,
    method: str = "fedavg",
    overrides: Sequence[str] = (),  # "training.local.momentum=0.9"
    shape: tuple[int, ...] = (3, 32, 32),  # of one input
    classes: int = 10,
    batch: int = 32,
    images: int = 500,  # of the client
) -> list[OnDevice]:
    """Seconds, memory and joules of one client's round on each device.

    >>> [priced] = price_steps("cnn", ["raspberry-pi-5"], shape=(1, 28, 28))
    >>> priced.steps, priced.fits
    (16, True)
    """
    from edgefl.cost import CostModel
    from edgefl.fleet import load_profile
    from edgefl.models.registry import build_model
    from edgefl.planning.training_time import on_devices
    from edgefl.scenario.named_step import read_step

    spec, [recipe] = read_step(model, method, list(overrides), batch)
    costs = CostModel(build_model(spec, shape, classes, numbers=False))
    return on_devices(costs, recipe, images, [load_profile(name) for name in on])


def schedule(
    scenario: Named,
    overrides: Overrides = (),
    *,
    rounds: int = 1000,
    selections: Sequence[str] | None = None,  # values of training.selection; every selector if not given
    method: str | None = None,  # label; the scenario's first if not given
    seed: int | None = None,
) -> SchedulerComparison:
    """Seconds and joules of the same rounds under each scheduler, without training.

    >>> compared = schedule("5g_10clients", rounds=3, selections=["uniform", "oort"])
    >>> sorted(compared.schedulers)
    ['oort', 'uniform']
    """
    from edgefl.planning.compare_schedulers import compare_schedulers

    found = _loaded(scenario, overrides)
    return compare_schedulers(found, rounds=rounds, seed=seed, method=method, selections=selections)


def run_sweep(
    scenario: str | PathLike[str],
    grid: Mapping[str, Sequence[Any]],  # values by path, {"training.local.lr": [0.02, 0.05]}
    *,
    out: str | PathLike[str] | None = None,  # the sweep's folder; if not given, a temporary one
    overrides: Overrides = (),
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    processes: int | None = None,  # jobs at the same time; one for each processor if not given
    device: DeviceName = "auto",
    train: bool = True,
    progress: Said = True,  # as for simulate, with a line for each job
) -> RunResults:
    """Run a scenario with every combination of values; with the same ``out``, only what is not finished.

    >>> few = {"methods": ["fedavg"], "seeds": [0], "overrides": {"training.rounds": 1}, "train": False}
    >>> runs = run_sweep("5g_10clients", {"training.cohort": [2, 3]}, processes=1, **few)
    >>> [run.name for run in runs]
    ['cohort=2', 'cohort=3']
    """
    from edgefl.report.sweep_result import results_in
    from edgefl.sweep.jobs import Job, jobs_of, settings_of
    from edgefl.sweep.sweeping import sweep

    def done(job: Job, failure: str | None, left: int) -> None:
        if say is not None:
            setting = ", ".join(f"{path}={value}" for path, value in job.setting.items())
            say(f"{setting}, seed {job.seed}: {failure or 'done'}; {left} left")

    stream = live_stream() if progress is True else None
    say = progress if callable(progress) else None if stream is None else partial(print, file=stream)
    jobs = jobs_of(
        str(scenario), overrides, settings_of(grid), seeds=seeds, methods=methods, device=device, train=train
    )
    made = sweep(jobs, _folder(out), processes=processes, done=done)
    for id, failure in made.failures.items():
        raise EdgeflError(f"{len(made.failures)} of {len(jobs)} jobs failed; {id}: {failure}")
    return RunResults(results_in(made.path))


def replay(
    run: Run,
    overrides: Overrides,  # changes of network, fleet, targets or budgets
    *,
    out: str | PathLike[str] | None = None,  # a folder that does not exist; if not given, a temporary one
    methods: Sequence[str] | None = None,
    trust: bool = False,  # execute Python files of the run that have changed
) -> RunResult:
    """Re-time a finished run on another network or fleet, without training; a note names methods that cannot be.

    >>> few = {"training.rounds": 1, "seeds": [0]}
    >>> run = simulate("5g_10clients", overrides=few, methods=["fedavg"])
    >>> slower = replay(run, {"network.topology.latency": "500ms"})
    >>> run.rounds["seconds"][0].as_py() < 0.5 < slower.rounds["seconds"][0].as_py()
    True
    """
    from edgefl.rerun.replay import Replay

    replayed = Replay(_path(run), methods, trust=trust)
    for label, why in replayed.refused.items():
        warnings.warn(f"{label} is not replayed: {why}", Note, stacklevel=2)
    return RunResult(replayed.on(overrides, _folder(out) / "run" if out is None else _folder(out)))


def open_run(path: str | PathLike[str]) -> RunResult:
    """The results of a finished run.

    >>> open_run(simulate("5g_10clients", overrides={"training.rounds": 1}, train=False).path).name
    '5g_10clients'
    """
    return RunResult(user_path(path))


def timeline(run: Run, method: str, *, seed: int | None = None, round: int = 1) -> Figure:
    """A Gantt chart of one round: what each client computes and transfers.

    >>> run = simulate("5g_10clients", overrides={"training.rounds": 1}, methods=["fedavg"], train=False)
    >>> timeline(run, "fedavg").axes[0].get_xlabel()
    'seconds of virtual time since the round began'
    """
    from edgefl.report.timeline.data import read_timeline
    from edgefl.report.timeline.gantt import gantt_figure

    result = run if isinstance(run, RunResult) else open_run(run)
    result.check_labels([method])
    seed = result.results[method][0].seed if seed is None else seed
    if round not in result.rounds_of(method, seed)["round"].to_pylist():
        raise UserError(f"no round {round} of '{method}', seed {seed}, in this run", file=str(result.path))
    title = f"{result.name}, {method}, seed {seed}"
    return gantt_figure(read_timeline(result.of(method, seed).folder), round, title)


def _begun(found: Scenario | AppScenario, folder: Path, choices: dict[str, Any]) -> Callable[..., Path] | None:
    """What continues the run in a folder, or returns a finished one, if it is the same; None if it is another."""
    if not folder.is_dir() or not same_run(folder, found, validated(Choices, choices)):
        return None
    if RunPaths(folder).state.exists() or RunPaths(folder).faulted.exists():
        return partial(resume_apps if isinstance(found, AppScenario) else resume_run, folder)
    trains = choices["train"]
    now = inputs_of(found, folder) if isinstance(found, AppScenario) else Inputs(found, folder).now(trains=trains)
    check_inputs(read_run(folder)[1].inputs, now)
    return lambda **_: folder


def _loaded(scenario: Named, overrides: Overrides) -> Scenario:
    return with_overrides(scenario, overrides) if isinstance(scenario, Scenario) else load_scenario(scenario, overrides)


def _path(run: Run) -> Path:
    return run.path if isinstance(run, RunResult) else user_path(run)


def _folder(out: str | PathLike[str] | None) -> Path:
    """The folder ``out``, or a temporary one."""
    if out is not None:
        return user_path(out, argument="out")
    _TEMPORARY.append(TemporaryDirectory(prefix="edgefl-"))
    return Path(_TEMPORARY[-1].name)


def _remove_run(folder: Path) -> None:
    """Remove the run in a folder, if there is one; UserError if the folder has other files, or another process."""
    paths = RunPaths(folder)
    if not (paths.scenario.exists() and (paths.summary.exists() or paths.state.exists())):
        return
    labels = [each.name for each in folder.iterdir() if any(each.glob(f"{SEED}*"))]
    if others := {each.name for each in folder.iterdir()} - {*OWN, *labels}:
        message = f"has other files than the run's, such as {min(others)}; move them, or choose another folder"
        raise UserError(message, file=str(folder))
    with lock(folder):
        paths.remove(labels)
        rmtree(paths.longer, ignore_errors=True)
    paths.lock.unlink(missing_ok=True)
