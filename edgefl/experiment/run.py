"""Run or resume all methods and seeds of a scenario, and write the run directory."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from edgefl.errors import UserError
from edgefl.experiment.all_runs import AllRuns
from edgefl.experiment.directory import RunDirectory
from edgefl.experiment.extension import Extension
from edgefl.experiment.faults import NotWritten, RunMoved, storage_reason
from edgefl.experiment.guarded import ListenerError
from edgefl.experiment.inputs import allow_code
from edgefl.experiment.one_run import MakeTestbed
from edgefl.experiment.pausing import Pause
from edgefl.experiment.state import Choices
from edgefl.record.listener import Listener
from edgefl.record.paths import how_to_continue, is_interrupted
from edgefl.scenario import Scenario, load_scenario, with_overrides
from edgefl.scenario.overrides import of_engine
from edgefl.torch_settings import neutral_torch
from edgefl.validation import validated

MOST_NEW_SEEDS = 1000
"""Seeds that are added at a time; comparisons are planned up to it, and a larger number is a mistake."""


def run(
    scenario: Scenario,
    *,
    out: Path,
    methods: Sequence[str] | None = None,
    device: str = "auto",
    engine: str | None = None,
    train: bool = True,
    cache: bool = True,
    listeners: Sequence[Listener] = (),
    pause: Pause | None = None,
    testbed: MakeTestbed | None = None,
    results: Path | None = None,
) -> Path:
    """Run the scenario's methods with each of its seeds, and write a run directory.

    Args:
        scenario: the scenario.
        out: the run directory; created if it does not exist. It must be empty: nothing is overwritten.
        methods: labels of the methods to run; all of them if not given.
        device: ``auto``, ``cpu`` or ``cuda``: where training runs.
        engine: ``auto`` or an engine's name, in place of the scenario's ``training.engine.kind``.
        train: ``False`` simulates only the system, with placeholder numbers in place of training.
        cache: if methods have equal training jobs, cache results of training on disk until their seed is done. They
            serve equal jobs of other methods, and jobs since the last checkpoint of an interrupted run.
        listeners: follow all runs, in this order.
        pause: when to pause a run; the directory can then be resumed, with another pause or none.
        testbed: makes the real links of each run; computed ones if not given.
        results: a folder for cached results that stays when the runs have ended, for other runs of this scenario.

    Returns:
        The run directory.

    Raises:
        UserError: data files are missing, an argument is invalid, ``out`` is not empty or another process uses it;
            nothing is written or removed.
        RunsFailed: a part of a method raised an error; the directory is complete and contains the error.
        NotWritten: files could not be written, for example on a full disk; the run can be resumed.
        RunMoved: the folder was moved or removed while a run was in progress.
        Paused: a run was paused.
    """
    labels = [method.label for method in scenario.methods] if methods is None else list(methods)
    chosen = [scenario.method(label).label for label in labels]
    options: dict[str, object] = {"methods": chosen, "device": device, "train": train, "cache": cache}
    if testbed is not None:
        options["emulated"] = True
    choices = validated(Choices, options)
    if engine is not None:
        scenario = with_overrides(scenario, of_engine(engine))
    with RunDirectory(out.absolute(), choices) as directory:
        return _execute(scenario, directory, listeners, pause, testbed=testbed, results=results)


def resume(
    path: Path,
    *,
    listeners: Sequence[Listener] = (),
    pause: Pause | None = None,
    trust: bool = False,
) -> Path:
    """Resume an interrupted run; the result is identical byte for byte to that of an uninterrupted run.

    In a finished directory, runs that failed because of a part of their method start again; once the part is fixed, the
    result is that of a directory in which no run failed.

    Args:
        path: the run directory.
        listeners: follow the runs, including rounds that are only re-executed.
        pause: when to pause again.
        trust: execute the scenario's Python files even if they are not those that the run began with.

    Raises:
        UserError: there is no interrupted run, another process uses it, or its files are inconsistent.
        LogDiffers: re-execution gives other results than the run's journal contains (with another build of torch, for
            example).
        RunsFailed, NotWritten, RunMoved, Paused: as for :func:`run`.
    """
    return _continue(RunDirectory(path.absolute(), None), path, listeners, pause, trust=trust)


def add_seeds(
    path: Path,
    count: int,
    *,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    cache: bool = True,
    listeners: Sequence[Listener] = (),
    pause: Pause | None = None,
    trust: bool = False,
) -> Path:
    """Add seeds to a finished run; the result is identical byte for byte to that of a run with all these seeds.

    The new seeds are the whole numbers after the highest present one. The present runs are not executed again, and stay
    readable until all new ones are done. If it is interrupted, :func:`resume` continues.

    Args:
        path: the run directory.
        count: the number of new seeds.
        device: where training runs; it should be the device of the present runs.
        cache: as for :func:`run`.
        listeners: follow the new runs.
        pause: when to pause.
        trust: as for :func:`resume`.

    Raises:
        UserError: the folder has no finished run that can be extended, another process uses it, or its files or inputs
            have changed; nothing is written.
        RunsFailed, NotWritten, RunMoved, Paused: as for :func:`run`.
    """
    if not 1 <= count <= MOST_NEW_SEEDS:
        raise UserError(f"expected 1 to {MOST_NEW_SEEDS} new seeds, found {count}", file="--add-seeds")
    directory = RunDirectory(path.absolute(), None, extension=Extension(count, device, cache))
    return _continue(directory, path, listeners, pause, trust=trust)


def _continue(
    directory: RunDirectory,
    path: Path,
    listeners: Sequence[Listener],
    pause: Pause | None,
    *,
    trust: bool,
) -> Path:
    """Execute the missing runs of a directory."""
    with directory:
        scenario = load_scenario(directory.paths.scenario, run_code=False)
        if directory.seeds is not None:
            scenario = scenario.with_seeds(directory.seeds)
        labels = [method.label for method in scenario.methods]
        directory.check(labels, scenario.seeds, scenario.task.measured)
        if directory.choices.emulated:
            raise UserError(f"is an emulation; to continue: {how_to_continue(path)}", file=str(path))
        allow_code(scenario, directory.inputs, path, trust=trust)
        return _execute(scenario, directory, listeners, pause)


@neutral_torch()
def _execute(
    scenario: Scenario,
    directory: RunDirectory,
    listeners: Sequence[Listener],
    pause: Pause | None,
    *,
    testbed: MakeTestbed | None = None,
    results: Path | None = None,
) -> Path:
    runs = AllRuns(scenario, directory, listeners, pause, testbed=testbed, results=results)
    try:
        runs.begin()
        for seed in scenario.seeds:
            runs.run_seed(seed)
        runs.finish()
    except ListenerError as failure:
        raise failure.error from failure.error.__cause__
    except UserError:
        if not runs.rounds:
            directory.forget()
        raise
    except (OSError, sqlite3.Error) as error:
        if directory.moved:
            raise RunMoved(directory.path, directory.new_place, runs.at) from error
        if not directory.opened:
            raise
        reason = storage_reason(error)
        raise NotWritten(directory.path, reason, resumable=is_interrupted(directory.path)) from error
    runs.check_faults()
    return directory.path
