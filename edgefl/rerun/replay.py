"""``edgefl replay``: repeat a finished run on another network or fleet without training, if no decision read a time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from edgefl.errors import UserError
from edgefl.experiment.inputs import SCENARIO, digest_of_scenario, keep_code
from edgefl.experiment.one_run import OneRun
from edgefl.experiment.recording import Recording
from edgefl.experiment.step_costs import StepKey
from edgefl.files import write_file, writing_folder
from edgefl.record import RunPaths
from edgefl.record.costs import write_costs
from edgefl.record.names import CLIENT_MODELS, CLIENTS, FINAL_MODEL
from edgefl.record.summary import SeedResult, write_summary
from edgefl.rerun.finished_run import FinishedRun
from edgefl.scenario import Scenario, resolve, with_overrides
from edgefl.scenario.overrides import Overrides, parse_overrides
from edgefl.torch_settings import neutral_torch
from edgefl.yaml_file import dump_yaml

CHANGEABLE = ("network", "fleet", "failures", "budgets", "targets", "target_metric", "stop", "name")
"""Sections of a scenario that do not affect training; ``training.bandwidth`` does not either."""


class Replay:
    """A finished run, ready to be replayed on other networks.

    Args:
        run: its directory.
        methods: labels; all of the run's if not given.

    Raises:
        UserError: the run is not finished, nothing was trained, a file is damaged, or a decision read a time.
    """

    @neutral_torch()
    def __init__(self, run: Path, methods: Sequence[str] | None = None, *, trust: bool = False) -> None:
        self._run = FinishedRun(run, methods, trust=trust)
        self._recordings = {
            (label, entry.seed): self._timeless(label, entry.seed)
            for label in self._run.labels
            for entry in self._run.entries[label]
        }

    @neutral_torch()
    def on(self, changes: Overrides, out: Path) -> Path:
        """Replay the run with changes to its scenario, and write a run directory like that of a full run.

        Args:
            changes: values by path, inside one of :data:`CHANGEABLE`.
            out: the run directory; must not exist.

        Raises:
            UserError: a change is invalid or affects training, or the other network or fleet would change what is
                trained. Nothing is written.
        """
        _check_changeable(changes)
        scenario = with_overrides(self._run.scenario, changes, run_code=False)
        _check_budgets(scenario)
        inputs = self._run.inputs(scenario)
        if os.path.lexists(out):
            raise UserError("expected a folder that does not exist yet", file=str(out))
        try:
            with writing_folder(out) as folder:
                self._write(scenario, folder, inputs)
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror or error}", file=str(out)) from None
        return out

    def _write(self, scenario: Scenario, folder: Path, inputs: dict[str, str]) -> None:
        worlds = {seed: self._run.world(scenario, seed) for seed in self._run.seeds}

        def replayed(place: tuple[str, int]) -> tuple[SeedResult, list[StepKey]]:
            label, seed = place
            costs = self._run.costs[label]
            one = OneRun(scenario, scenario.method(label), worlds[seed], costs, RunPaths(folder))
            recording = self._recordings[place]
            return one.replayed(self._run.learner(label, recording)), sorted(costs.used)

        found = {place: replayed(place) for place in self._recordings}
        known = {(label, each.seed): each for label in self._run.labels for each in self._run.entries[label]}
        alike = {place for place, (entry, _) in found.items() if entry.rounds == known[place].rounds}
        # The finished run has no models of earlier rounds.
        written = scenario if alike == found.keys() else scenario.model_copy(update={"keep_models": "none"})
        models = () if written.keep_models == "none" else (FINAL_MODEL, CLIENT_MODELS)
        data = resolve(written)
        write_file(RunPaths(folder).scenario, dump_yaml(data))
        keep_code(written, inputs, folder)
        entries: dict[str, list[SeedResult]] = {label: [] for label in self._run.labels}
        for (label, seed), before in known.items():
            entry, used = found[label, seed]
            for key in used:
                self._run.costs[label].step(*key)
            if (label, seed) in alike:
                # The last model is the same, and so are all measurements of it.
                measured = before.model_fields_set & {"clients", "personalisation"}
                entry = entry.model_copy(update={name: getattr(before, name) for name in measured})
                self._copy(label, seed, folder, (CLIENTS, *models))
            entries[label].append(entry)
        write_costs({label: each.rows() for label, each in self._run.costs.items()}, RunPaths(folder).costs)
        inputs = {**inputs, SCENARIO: digest_of_scenario(data)}
        write_summary(scenario.name, entries, RunPaths(folder).summary, inputs, self._run.software)

    def _copy(self, label: str, seed: int, folder: Path, names: Iterable[str]) -> None:
        """Copy those of these files that the finished run has."""
        run, copies = self._run.paths.of(label, seed), RunPaths(folder).of(label, seed)
        for name in names:
            if (run.folder / name).exists():
                shutil.copyfile(run.folder / name, copies.folder / name)

    def _timeless(self, label: str, seed: int) -> Recording:
        recording = self._run.recording(label, seed)
        if recording.timed:
            round, what, reads = recording.timed[0]
            raise UserError(
                f"the decision on {what} in round {round + 1} read {' and '.join(reads)}, which depend on time, so the "
                "run cannot be replayed: simulate it instead, or choose other methods with --method",
                file=str(self._run.path),
                field=f"{label}, seed {seed}",
            )
        return recording


def replay(run: Path, changes: Overrides, out: Path, *, methods: Sequence[str] | None = None) -> Path:
    """Replay a finished run once; see :class:`Replay`."""
    return Replay(run, methods).on(changes, out)


def _check_budgets(scenario: Scenario) -> None:
    timed = [kind for kind in scenario.budgets.limits() if kind in ("seconds", "joules")]
    if scenario.stop != "rounds" and timed:
        raise UserError(
            f"the budget on {timed[0]} ends a run by time; --set stop=rounds reports the accuracy at each "
            "budget instead",
            field="stop",
        )


def _check_changeable(changes: Overrides) -> None:
    """Check that changes do not affect training.

    Raises:
        UserError: one does.
    """
    for change in parse_overrides(changes):
        if change.path[0] not in CHANGEABLE and tuple(change.path[:2]) != ("training", "bandwidth"):
            raise UserError(
                f"training depends on '{change.path[0]}'; a replay may change {', '.join(CHANGEABLE)}, "
                "training.bandwidth",
                file=change.origin,
                field=".".join(change.path),
            )
