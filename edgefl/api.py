"""``edgefl.simulate``: run a scenario from Python."""

from collections.abc import Sequence
from os import PathLike

from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.files import user_path
from edgefl.flower.run import run as run_apps
from edgefl.flower.scenario import AppScenario, load_any_scenario
from edgefl.hardware import DeviceName, EngineKind
from edgefl.record.events import Listener
from edgefl.report import RunResult
from edgefl.scenario import Scenario, rehearse, with_overrides
from edgefl.scenario.overrides import Overrides


def simulate(
    # a scenario, the path of its file, or the name of a shipped one. A file may run a Flower app; then device, engine
    # and train cannot be given.
    scenario: Scenario | str | PathLike[str],
    *,
    # the run directory, new or empty: existing files are never overwritten or removed. To run again into the same
    # folder, remove it first.
    out: str | PathLike[str],
    overrides: Overrides = (),  # changes by path, {"training.rounds": 20} or ["training.rounds=20"]
    methods: Sequence[str] | None = None,  # labels of the methods to run; all if not given
    device: DeviceName = "auto",  # where training runs
    engine: EngineKind | None = None,  # how training runs; the scenario's training.engine if not given
    train: bool = True,  # false simulates only devices and network, without accuracies
    listeners: Sequence[Listener] = (),  # follow the runs; see Listener
) -> RunResult:
    """Run a scenario and return its results.

    Raises:
        UserError: something in the scenario or the arguments is wrong, or ``out`` is not empty.
        edgefl.experiment.RunsFailed: a part of a method raised an error. ``out`` is complete nevertheless: the other
            methods continued, and ``RunResult(out)`` contains the rounds that the failed run completed.
        edgefl.experiment.NotWritten: a file cannot be written, for example because the disk is full.
    """
    folder = user_path(out, argument="out")
    if not isinstance(scenario, Scenario):
        found = load_any_scenario(scenario, overrides)
        if isinstance(found, AppScenario):
            for name, given in (("train", not train), ("engine", engine is not None), ("device", device != "auto")):
                if given:
                    raise UserError("a Flower app trains in its own code; remove this argument", field=name)
            return RunResult(run_apps(found, out=folder, methods=methods, listeners=listeners))
        scenario = found
    elif overrides:
        scenario = with_overrides(scenario, overrides)
    rehearse(scenario, overrides=overrides, trains=train)
    done = run(scenario, out=folder, methods=methods, device=device, engine=engine, train=train, listeners=listeners)
    return RunResult(done)
