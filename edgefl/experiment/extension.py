"""More seeds for a finished run: the state of a run directory in which only the new seeds are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgefl.errors import UserError
from edgefl.experiment.inputs import SCENARIO, Input, check_inputs, digest_of_scenario
from edgefl.experiment.recording import read_recording
from edgefl.experiment.state import Choices, Finished, State
from edgefl.record import RunPaths
from edgefl.record.costs import read_costs
from edgefl.record.paths import how_to_continue
from edgefl.record.summary import SCHEMA, SeedResult, Summary, read_summary
from edgefl.scenario import load_scenario, resolve
from edgefl.version import __version__
from edgefl.yaml_file import read_yaml


@dataclass(frozen=True)
class Extension:
    """Seeds to add to a finished run: the whole numbers that follow its highest seed.

    Attributes:
        count: their number.
        device: where training runs.
        cache: as in :class:`~edgefl.experiment.state.Choices`.
    """

    count: int
    device: Literal["auto", "cpu", "cuda"] = "auto"
    cache: bool = True

    def seeds(self, present: Sequence[int]) -> tuple[int, ...]:
        """The present seeds and the new ones.

        >>> Extension(2).seeds([0, 4])
        (0, 4, 5, 6)
        """
        return (*present, *range(max(present) + 1, max(present) + 1 + self.count))


def check_finished(path: Path) -> None:
    """Check that a folder contains a finished run that can be extended.

    Raises:
        UserError: there is none, a run of it is in progress or ended by a fault, another version wrote it, or its
            seconds were measured in an emulation.
    """
    paths = RunPaths(path)
    if paths.state.exists():
        raise UserError(f"contains an interrupted run; to continue: {how_to_continue(path)}", file=str(path))
    if not paths.summary.is_file():
        raise UserError("expected the folder of a finished run, found no summary.json", file=str(path))
    if "flower" in (read_yaml(paths.scenario) or ()):
        raise UserError("is a run of a Flower app, to which no seeds can be added: simulate it again", file=str(path))
    if paths.faulted.exists():
        raise UserError(
            f"has runs that ended by a fault; complete them before seeds are added: {how_to_continue(path)}",
            file=str(path),
        )
    summary = _summary(paths)
    if not summary.of_this_version:
        raise UserError(
            f"was created by edgefl {summary.edgefl}, this is {__version__}; only the same version can add seeds",
            file=str(path),
        )
    if any(paths.of(label, each.seed).emulation.exists() for label, each in _runs(summary)):
        raise UserError("is an emulation, to which no seeds can be added: emulate more seeds", file=str(path))


def extended_state(path: Path, extension: Extension) -> State:
    """The state of a finished run with more seeds; nothing is written.

    Raises:
        UserError: as for :func:`check_finished`, or a file of the run is damaged or has changed.
    """
    check_finished(path)
    paths = RunPaths(path)
    summary = _summary(paths)
    digest = digest_of_scenario(read_yaml(paths.scenario))
    check_inputs(summary.inputs, {SCENARIO: Input(str(paths.scenario), digest)})
    scenario = load_scenario(paths.scenario, run_code=False)
    extended = scenario.with_seeds(extension.seeds(scenario.seeds))
    steps = read_costs(paths.costs)
    # A finished directory has the steps of all seeds together, which is all that its costs.json needs.
    used = {label: [(step.alpha, step.batch, step.level) for step in steps.get(label, ())] for label in summary.methods}
    return State(
        edgefl=__version__,
        schema_version=SCHEMA,
        inputs={**summary.inputs, SCENARIO: digest_of_scenario(resolve(extended))},
        software=summary.software,
        choices=Choices(
            methods=tuple(summary.methods),
            device=extension.device,
            train=_is_trained(paths, summary),
            cache=extension.cache,
        ),
        seeds=extended.seeds,
        finished=tuple(
            Finished(label=label, seed=each.seed, entry=each, costs=list(used[label])) for label, each in _runs(summary)
        ),
    )


def _summary(paths: RunPaths) -> Summary:
    return read_summary(paths.summary)[1]


def _runs(summary: Summary) -> list[tuple[str, SeedResult]]:
    return [(label, each) for label, entries in summary.methods.items() for each in entries]


def _is_trained(paths: RunPaths, summary: Summary) -> bool:
    """Whether models were trained; only the log of a run shows it."""
    label, first = _runs(summary)[0]
    recording = read_recording(paths.of(label, first.seed).events)
    return bool(recording.digests or recording.evaluations)
