"""A finished run that goes on: with more rounds, past its budget, or with more seeds.

The longer run is an interrupted run in a folder inside the directory, and is resumed. With more rounds, its journal and
its checkpoint are made from what the finished run kept; with more seeds, the present runs are finished ones of it. Its
files replace those of the finished run, or join them, only when it is complete.
"""

import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgefl.errors import UserError
from edgefl.experiment.checkpoints import Checkpoints, read_kept
from edgefl.experiment.directory import Finished, check_finished, lock, runs_of, state_of
from edgefl.experiment.inputs import allow_code
from edgefl.experiment.journal import Journal
from edgefl.experiment.wiring import recipe_of
from edgefl.files import write_file
from edgefl.hardware import DeviceName
from edgefl.record import RunPaths, SeedPaths, names
from edgefl.record.costs import read_costs
from edgefl.record.events import Event
from edgefl.record.tables import read_events
from edgefl.scenario import Scenario, load_scenario, resolve, with_overrides
from edgefl.scenario.overrides import Overrides
from edgefl.yaml_file import dump_yaml


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Lock a finished run, so that no other process extends it."""
    own = lock(run)
    try:
        yield
    finally:
        RunPaths(run).lock.unlink(missing_ok=True)
        own.release()


def begin(run: Path, changes: Overrides, seeds: int, device: DeviceName, *, trust: bool) -> str:
    """Prepare the longer run, with changes or with so many new seeds; return how its rounds are trained, or empty."""
    summary, paths, longer = check_finished(run), RunPaths(run), RunPaths(RunPaths(run).longer)
    former = load_scenario(paths.scenario, run_code=False)
    former = allow_code(former, summary.inputs, run, trust=trust)
    finished: tuple[Finished, ...] = ()
    if seeds:
        first = max(former.seeds) + 1
        scenario = former.with_seeds((*former.seeds, *range(first, first + seeds)))
        used = {label: tuple(step.key for step in steps) for label, steps in read_costs(paths.costs).items()}
        finished = tuple(
            Finished(label=label, seed=each.seed, entry=each, costs=used.get(label, ()))
            for label, each in runs_of(summary)
        )
    else:
        scenario = with_overrides(former, changes, run_code=False)
        _check(former, scenario, max(each.rounds for _, each in runs_of(summary)))
    state = state_of(scenario, summary, paths, device, finished)
    longer.root.mkdir()
    if paths.inputs.is_dir():
        shutil.copytree(paths.inputs, longer.inputs)
    write_file(longer.scenario, dump_yaml(resolve(scenario)))
    kept: list[int] = []
    if state.choices.train and not seeds:
        kept = [_copy(paths.of(label, each.seed), longer.make(label, each.seed)) for label, each in runs_of(summary)]
    state.write(longer.state)  # last: a folder without it is not resumed
    if seeds:
        return ""
    if not state.choices.train:
        return "nothing was trained, so the longer run is simulated from its start"
    if not all(kept):
        return "the run kept no checkpoint, so it is trained from its start; the result is the same"
    return f"the run goes on from the checkpoint of round {min(kept)}"


def restart(run: Path) -> None:
    """Let the runs that are left train from their start."""
    for folder in sorted(RunPaths(run).longer.rglob(names.CHECKPOINTS)):
        SeedPaths(folder.parent).clear()


def forget(run: Path) -> None:
    """Remove a longer run of which nothing is done."""
    if not any(RunPaths(run).longer.rglob(names.EVENTS)):
        shutil.rmtree(RunPaths(run).longer)


def adopt(run: Path) -> None:
    """Replace the files of the finished run by those of the longer one, its summary last."""
    former, longer = RunPaths(run), RunPaths(RunPaths(run).longer)
    if longer.summary.exists():
        for file in (former.sensitivity, former.picture, former.against):
            file.unlink(missing_ok=True)
        files = [file for file in sorted(longer.root.rglob("*")) if file.is_file() and file != longer.summary]
        for file in (*files, longer.summary):
            (run / file.relative_to(longer.root)).parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, run / file.relative_to(longer.root))
    shutil.rmtree(longer.root)


def _copy(finished: SeedPaths, longer: SeedPaths) -> int:
    """Give a longer run the journal and the checkpoint of a finished one; return its round, 0 without one."""
    if not finished.checkpoint.exists():
        return 0
    round, tensors, facts = read_kept(finished.checkpoint)
    rows: list[Event] = []
    with Journal(longer.journal) as journal:
        for event in read_events(finished.events):
            rows.append(event)
            if event.kind == "round_end":
                journal.events(rows)
                journal.commit()
                rows = []
            if journal.rounds == round:
                break
    with Checkpoints(longer.checkpoints) as checkpoints:
        checkpoints.begin(round, tensors, facts)
    return round


def _check(former: Scenario, longer: Scenario, rounds: int) -> None:
    """Check that the longer run only goes on where the former one ended, after ``rounds`` rounds."""
    before, after = resolve(former), resolve(longer)
    limits, now = former.budgets.limits(), longer.budgets.limits()
    training = {**after["training"], "rounds": former.training.rounds}
    same = {**after, "training": training, "budgets": before["budgets"], "stop": before["stop"]}
    reason = field = None
    was, will = ([recipe_of(each, method) for method in each.methods] for each in (former, longer))
    rates = [(method.local, method.server) for method in was] == [(method.local, method.server) for method in will]
    if same != before:
        reason = "a run that goes on keeps its scenario, except training.rounds, larger budgets and stop=rounds"
    elif longer.training.rounds < rounds:
        field, reason = "training.rounds", f"expected at least the {rounds} rounds of the finished run"
    elif longer.training.rounds > former.training.rounds and not rates:
        field, reason = "training.rounds", "a learning rate ends at training.rounds: more rounds need a new run"
    elif any(limit < limits.get(kind, math.inf) for kind, limit in now.items()):
        field, reason = "budgets", "expected no smaller budgets than those of the finished run"
    elif longer.stop not in (former.stop, "rounds"):
        field, reason = "stop", "expected stop=rounds"
    elif before == after:
        reason = "expected more rounds (--rounds), a larger budget or stop=rounds (--set)"
    if reason is not None:
        raise UserError(reason, field=field)
