"""``edgefl replay``: repeat a finished run on another network or fleet without training, if no decision read a time.

A budget that ends a run reads the clock only at its end, so a replay uses the training as far as it goes.

With ``--sensitivity`` the run is timed again on slower or faster devices and links. Decisions that read a time (as GMBS
does to choose blocks) are held as they were, and the file lists them: with different decisions, the method might have
done better or worse. If the conditions would change what is trained (because a device is unavailable at the new time),
the file gives the reason and contains no rows of the method.
"""

import itertools
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from edgefl.data.attackers import attack_of
from edgefl.errors import UserError
from edgefl.experiment.inputs import SCENARIO, digest_of_scenario, keep_code
from edgefl.experiment.one_run import OneRun
from edgefl.experiment.recording import Recording
from edgefl.experiment.wiring import world_of
from edgefl.files import write_file, writing_folder
from edgefl.record import RunPaths
from edgefl.record.costs import StepKey, write_costs
from edgefl.record.names import CLIENT_MODELS, CLIENTS, FINAL_MODEL
from edgefl.record.rounds import RoundRow
from edgefl.record.sensitivity import DEVICES, DRAWS, OWN, Condition, Retimed, write_retimed
from edgefl.record.summary import SeedResult, write_summary
from edgefl.record.tables import SENSITIVITY
from edgefl.rerun.changes import with_bandwidth, with_bounds, with_draw, with_held_decisions
from edgefl.rerun.finished_run import FinishedRun, timed_decision
from edgefl.scenario import Scenario, resolve, with_overrides
from edgefl.scenario.overrides import Overrides, parse_overrides
from edgefl.simulation.run import simulate_run
from edgefl.simulation.setup import Setup
from edgefl.torch_settings import neutral_torch
from edgefl.yaml_file import dump_yaml

CHANGEABLE = ("network", "fleet", "failures", "prices", "start", "budgets", "targets", "target_metric", "stop", "name")
"""Sections of a scenario that do not affect training; ``training.bandwidth`` does not either."""


class Replay:
    """A finished run, or some of its methods, ready to be replayed on other networks.

    ``refused`` are the methods that cannot be, with the reason, such as a decision that read a time; UserError if none
    can.
    """

    @neutral_torch()
    def __init__(self, run: Path, methods: Sequence[str] | None = None, *, trust: bool = False) -> None:
        self._run = FinishedRun(run, methods, trust=trust)
        self.refused: dict[str, str] = {}
        self._recordings: dict[tuple[str, int], Recording] = {}
        for label in self._run.labels:
            try:
                known = {(label, seed): recording for seed, recording in self._run.recordings(label).items()}
            except UserError as error:
                self.refused[label] = error.message
                continue
            if (why := timed_decision(known.values())) is not None:
                self.refused[label] = why
            else:
                self._recordings |= known
        self._run.labels = [label for label in self._run.labels if label not in self.refused]
        if not self._run.labels:
            label, why = next(iter(self.refused.items()))
            raise UserError(f"{why}, so the run cannot be replayed: simulate it instead", file=str(run), field=label)

    @neutral_torch()
    def on(self, changes: Overrides, out: Path) -> Path:
        """Replay the run with changes inside :data:`CHANGEABLE`, and write a run directory like that of a full run.

        ``out`` must not exist; UserError if a change is invalid or affects training, or if no round ends there, and
        then nothing is written.
        """
        _check_changeable(changes)
        scenario = with_overrides(self._run.scenario, changes, run_code=False)
        if attack_of(scenario.failures) != attack_of(self._run.scenario.failures):
            raise UserError("training depends on it, so a replay may not change it", field="failures.malicious")
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
        worlds = {seed: world_of(scenario, seed) for seed in self._run.seeds}

        def replayed(place: tuple[str, int]) -> tuple[SeedResult, list[StepKey]]:
            label, seed = place
            costs = self._run.costs[label]
            one = OneRun(scenario, scenario.method(label), worlds[seed], costs, RunPaths(folder))
            return one.replayed(self._run.learner(label, self._recordings[place])), sorted(costs.used)

        found = {place: replayed(place) for place in self._recordings}
        if not any(entry.rounds for entry, _ in found.values()):
            end = next(entry.stop for entry, _ in found.values())
            why = end.message or f"the first one exceeds budgets.{end.reason}"
            raise UserError(f"no round of the replay ends: {why}", file=str(self._run.path))
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
            tested = before.metric.model_dump(include={"samples", "labels"}, exclude_unset=True)
            entry = entry.model_copy(update={"metric": entry.metric.model_copy(update=tested)})
            if (label, seed) in alike:
                # The last model is the same, and so are all measurements of it.
                measured = before.model_fields_set & {"clients", "personalisation"}
                entry = entry.model_copy(update={name: getattr(before, name) for name in measured})
                run, copies = self._run.paths.of(label, seed).folder, RunPaths(folder).of(label, seed).folder
                for name in (CLIENTS, *models):
                    if (run / name).exists():
                        shutil.copyfile(run / name, copies / name)
            entries[label].append(entry)
        write_costs({label: each.rows() for label, each in self._run.costs.items()}, RunPaths(folder).costs)
        inputs = {**inputs, SCENARIO: digest_of_scenario(data)}
        software, own = self._run.software, scenario.quantities
        write_summary(scenario.name, entries, RunPaths(folder).summary, inputs, software, figures=own)


def _check_changeable(changes: Overrides) -> None:
    for change in parse_overrides(changes):
        if change.path[0] not in CHANGEABLE and tuple(change.path[:2]) != ("training", "bandwidth"):
            raise UserError(
                f"training depends on '{change.path[0]}'; a replay may change {', '.join(CHANGEABLE)}, "
                "training.bandwidth",
                file=change.origin,
                field=".".join(change.path),
            )


CONDITIONS = [Condition(*each) for each in itertools.product(DEVICES, (0.7, 1.0, 1.3))]
"""The low, nominal and high bounds of the profiles' figures, each with 70 %, 100 % and 130 % of the bandwidth."""

OTHER_DRAWS = [OWN._replace(draw=draw) for draw in range(1, DRAWS)]
"""The run's own devices and bandwidth, with other shares in queues."""


@neutral_torch()
def write_sensitivity(
    path: Path, conditions: Sequence[Condition] | None = None, *, trust: bool = False, untrained: bool = False
) -> Path:
    """Re-time a finished run, and write ``sensitivity.parquet`` into its directory; returns the file.

    The conditions are those of :data:`CONDITIONS`, and with ``queue: fifo`` also other draws of the shares.
    ``untrained`` accepts a run after ``--no-train``.
    """
    run = FinishedRun(path, trust=trust)
    run.inputs(run.scenario)
    if conditions is None:
        fifo = run.scenario.network.transport.queue == "fifo"
        conditions = [*CONDITIONS, *(OTHER_DRAWS if fifo else ())]
    held: dict[str, list[str]] = {}
    refused: dict[str, str] = {}
    tables: dict[str, list[pa.Table]] = {}
    for label in run.labels:
        try:
            recordings = run.recordings(label, untrained=untrained)
            if decided := sorted({what for recording in recordings.values() for _, what, _ in recording.timed}):
                held[label] = decided
            rounds = {entry.seed: entry.rounds for entry in run.entries[label]}
            tables[label] = []
            for seed, recording in recordings.items():
                for condition in conditions:
                    rows = _retimed(run.setup(label, seed, recording), recording, rounds[seed], condition)
                    tables[label].append(_table(label, seed, condition, rows))
        except UserError as error:
            refused[label] = str(error)
    if not tables:
        raise UserError("no method of this run was trained to its end, so no method can be re-timed", file=str(path))
    kept = [table for label in tables if label not in refused for table in tables[label]]
    whole = pa.concat_tables([SENSITIVITY.empty_table(), *kept]).unify_dictionaries()
    return write_retimed(path, Retimed(whole, held, refused))


def _retimed(setup: Setup, recording: Recording, rounds: int, condition: Condition) -> list[RoundRow]:
    if not rounds:
        return []
    setup = with_draw(with_bounds(with_bandwidth(setup, condition.bandwidth), condition.devices), condition.draw)
    outcome = simulate_run(with_held_decisions(setup, recording))
    if outcome.rounds < rounds:
        why = outcome.untrained or "the run would end"
        raise UserError(f"time affects what is trained: after round {outcome.rounds} of {rounds}, {why}")
    return outcome.rows[:rounds]


def _table(label: str, seed: int, condition: Condition, rows: Sequence[RoundRow]) -> pa.Table:
    constant = {"label": label, "seed": seed, **condition._asdict()}
    bytes = itertools.accumulate(row.bytes_down + row.bytes_up for row in rows)
    spent = zip(rows, bytes, itertools.accumulate(row.joules for row in rows), strict=True)
    found = [constant | {"round": row.round, "seconds": row.seconds, "bytes": b, "joules": j} for row, b, j in spent]
    return pa.Table.from_pylist(found, schema=SENSITIVITY)
