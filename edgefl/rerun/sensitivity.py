"""``edgefl replay --sensitivity``: time a finished run again on slower or faster devices and links.

Training stays the same: the same clients, steps and models, and so the same accuracy after each round. Decisions that
read a time (as GMBS does to choose blocks) are held as they were, and the file lists them: with different decisions,
the method might have done better or worse. If the conditions would change what is trained (because a device is
unavailable at the new time), the file gives the reason and contains no rows of the method.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from edgefl.errors import UserError
from edgefl.experiment.recording import Recording
from edgefl.record.rounds import RoundRow
from edgefl.record.sensitivity import DEVICES, DRAWS, OWN, Condition, Retimed, write_retimed
from edgefl.record.tables import SENSITIVITY
from edgefl.rerun.changes import with_bandwidth, with_bounds, with_draw, with_held_decisions
from edgefl.rerun.finished_run import FinishedRun
from edgefl.simulation.run import simulate_run
from edgefl.simulation.setup import Setup
from edgefl.torch_settings import neutral_torch

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
