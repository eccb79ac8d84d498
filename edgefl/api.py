"""``edgefl.simulate``: the main job as one Python call."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.experiment import run
from edgefl.hardware import DeviceName, EngineKind
from edgefl.report import RunResult
from edgefl.scenario import Scenario, load_scenario, rehearse, with_overrides

if TYPE_CHECKING:
    from edgefl.experiment.progress import Progress
    from edgefl.scenario.overrides import Overrides


def simulate(
    scenario: Scenario | str | PathLike[str],
    *,
    out: str | PathLike[str],
    overrides: Overrides = (),
    methods: Sequence[str] | None = None,
    device: DeviceName = "auto",
    engine: EngineKind | None = None,
    train: bool = True,
    progress: Progress | None = None,
) -> RunResult:
    """Run a scenario and return what it found.

    Args:
        scenario: a scenario, the path of its file, or a shipped one's name.
        out: the run directory, new or empty: nothing that is there is ever written over or removed. To run again into
            the same folder, remove it first.
        overrides: changes by path, ``{"training.rounds": 20}`` or ``["training.rounds=20"]``.
        methods: labels of the methods to run; all of them if not given.
        device: where training runs.
        engine: how training runs; as the scenario says (``training.engine``) if not given.
        train: false runs devices and network alone, without accuracies.
        progress: who is told about each round; see :class:`edgefl.experiment.progress.Progress`.

    Raises:
        UserError: something in the scenario or the arguments is wrong, or ``out`` holds something.
        edgefl.experiment.RunsFailed: a part of a method raised an error. ``out`` is complete nevertheless: the other
            methods went on, and ``RunResult(out)`` says of the failed run how far it came.
        edgefl.experiment.NotWritten: the disk is full, say.
        edgefl.experiment.RunMoved: the folder was moved or removed while a run was under way.
    """
    if not isinstance(scenario, Scenario):
        scenario = load_scenario(scenario, overrides)
    elif overrides:
        scenario = with_overrides(scenario, overrides)
    rehearse(scenario, overrides=overrides)
    folder = run(
        scenario,
        out=Path(out),
        methods=None if methods is None else list(methods),
        device=device,
        engine=engine,
        train=train,
        progress=progress,
    )
    return RunResult(folder)
