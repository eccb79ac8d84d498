"""Re-time a finished run under other conditions: when each of its rounds would end, and what it would cost.

Training stays the same: the same clients, steps and models, and so the same accuracy after each round. Decisions that
read a time (as GMBS does to choose blocks) are held as they were, and the file lists them: with different decisions,
the method might have done better or worse. If the conditions would change what is trained (because a device is
unavailable at the new time), the file gives the reason and contains no rows of the method.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from edgefl.errors import UserError
from edgefl.experiment.recording import Recording
from edgefl.experiment.wiring import SharedWorld, client_links_of
from edgefl.network.client_links import ClientLinks
from edgefl.record.listener import Listener
from edgefl.record.rounds import RoundRow
from edgefl.record.sensitivity import Condition, Retimed, write_retimed
from edgefl.record.tables import SENSITIVITY
from edgefl.rerun.finished_run import FinishedRun
from edgefl.rerun.retimed import retimed_setup
from edgefl.rerun.sensitivity.conditions import CONDITIONS, OTHER_DRAWS, at_bound
from edgefl.rerun.sensitivity.held_decisions import HeldScheduler, HeldSelector
from edgefl.simulation.run import simulate_run
from edgefl.simulation.setup import Setup
from edgefl.torch_settings import neutral_torch


class _AllRetimedError(Exception):
    """Raised when the last trained round has ended."""


class _TrainedRounds(Listener):
    """Keeps the rows of the trained rounds, and ends the run after the last one."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self.rows: list[RoundRow] = []

    def round_ended(self, row: RoundRow) -> None:
        self.rows.append(row)
        if row.round >= self._rounds:
            raise _AllRetimedError


@dataclass(frozen=True)
class _Retiming:
    """The re-timing of one method with one seed."""

    run: FinishedRun
    label: str
    seed: int
    rounds: int
    recording: Recording

    def table(self, world: SharedWorld, links: ClientLinks, condition: Condition) -> pa.Table | str:
        """Return the re-timed rounds, or why the training would have been different."""
        try:
            return _table(self, condition, self._rows(world, links, condition))
        except UserError as error:
            return str(error)

    def _rows(self, world: SharedWorld, links: ClientLinks, condition: Condition) -> list[RoundRow]:
        if not self.rounds:
            return []
        found = _TrainedRounds(self.rounds)
        with suppress(_AllRetimedError):
            simulate_run(self._setup(world, links, condition, found))
        if len(found.rows) < self.rounds:
            raise UserError(f"the run would have ended after round {len(found.rows)} of {self.rounds}")
        return found.rows

    def _setup(self, world: SharedWorld, links: ClientLinks, condition: Condition, listener: Listener) -> Setup:
        setup = retimed_setup(
            self.run,
            self.label,
            self.recording,
            world=world,
            links=links,
            listener=listener,
            bandwidth=condition.bandwidth,
            draw=condition.draw,
        )
        timed = {what for _, what, _ in self.recording.timed}
        return replace(
            setup,
            scheduler=HeldScheduler(self.recording.alphas) if "blocks" in timed else setup.scheduler,
            selector=HeldSelector(self.recording.cohorts) if "selection" in timed else setup.selector,
        )


@neutral_torch()
def write_sensitivity(
    path: Path, conditions: Sequence[Condition] | None = None, *, trust: bool = False, untrained: bool = False
) -> Path:
    """Re-time a finished run under each of the conditions, and write ``sensitivity.parquet`` into its directory.

    Args:
        path: the run directory.
        conditions: the conditions; if not given, those of :data:`CONDITIONS`, and with ``queue: fifo`` also other draws
            of the shares.
        trust: execute the scenario's Python files even if they are not those that the run began with.
        untrained: accept a run after ``--no-train``.

    Returns:
        The file.

    Raises:
        UserError: the run is not finished, nothing was trained, or arrival times decided what was aggregated.
    """
    run = FinishedRun(path, trust=trust)
    run.inputs(run.scenario)
    if conditions is None:
        fifo = run.scenario.network.transport.queue == "fifo"
        conditions = [*CONDITIONS, *(OTHER_DRAWS if fifo else ())]
    held: dict[str, list[str]] = {}
    refused: dict[str, str] = {}
    retimings: list[_Retiming] = []
    for label in run.labels:
        try:
            own = [
                _Retiming(run, label, entry.seed, entry.rounds, run.recording(label, entry.seed, untrained=untrained))
                for entry in run.entries[label]
            ]
        except UserError as error:
            refused[label] = str(error)
            continue
        retimings += own
        decided = sorted({what for one in own for _, what, _ in one.recording.timed})
        if decided:
            held[label] = decided
    if not retimings:
        raise UserError("no method of this run was trained to its end, so no method can be re-timed", file=str(path))
    tables: dict[str, list[pa.Table]] = {}
    for condition, world, links in _worlds(run, conditions):
        for one in retimings:
            if one.seed != world.seed:
                continue
            table = one.table(world, links, condition)
            if isinstance(table, str):
                refused.setdefault(one.label, table)
            else:
                tables.setdefault(one.label, []).append(table)
    kept = [table for label in run.labels if label not in refused for table in tables.get(label, ())]
    whole = pa.concat_tables([SENSITIVITY.empty_table(), *kept]).unify_dictionaries()
    return write_retimed(path, Retimed(whole, held, refused))


def _worlds(run: FinishedRun, conditions: Sequence[Condition]) -> Iterator[tuple[Condition, SharedWorld, ClientLinks]]:
    """Yield each condition with each seed of the run."""
    seeds = dict.fromkeys(entry.seed for label in run.labels for entry in run.entries[label])
    for seed in seeds:
        world = run.world(run.scenario, seed)
        links = client_links_of(run.scenario, world)
        for condition in conditions:
            profiles = tuple(at_bound(profile, condition.devices) for profile in world.fleet.profiles)
            yield condition, replace(world, fleet=replace(world.fleet, profiles=profiles)), links


def _table(one: _Retiming, condition: Condition, rows: Sequence[RoundRow]) -> pa.Table:
    count = len(rows)
    columns = {
        "label": [one.label] * count,
        "seed": [one.seed] * count,
        "devices": [condition.devices] * count,
        "bandwidth": [condition.bandwidth] * count,
        "round": [row.round for row in rows],
        "seconds": [row.seconds for row in rows],
        "bytes": _summed([row.bytes_down + row.bytes_up for row in rows]),
        "joules": _summed([row.joules for row in rows]),
        "draw": [condition.draw] * count,
    }
    return pa.table({name: pa.array(columns[name], SENSITIVITY.field(name).type) for name in SENSITIVITY.names})


def _summed(amounts: Sequence[float]) -> list[float]:
    total, sums = type(amounts[0])(0) if amounts else 0, []
    for amount in amounts:
        total += amount
        sums.append(total)
    return sums
