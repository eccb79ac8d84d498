"""``edgefl replay --sensitivity``: time a finished run again on slower or faster devices and links.

Training stays the same: the same clients, steps and models, and so the same accuracy after each round. Decisions that
read a time (as GMBS does to choose blocks) are held as they were, and the file lists them: with different decisions,
the method might have done better or worse. If the conditions would change what is trained (because a device is
unavailable at the new time), the file gives the reason and contains no rows of the method.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel

from edgefl.errors import UserError
from edgefl.experiment.recording import Recording
from edgefl.experiment.wiring import SharedWorld, client_links_of, world_of
from edgefl.fleet.figure import Bound, Estimate, opposite, value
from edgefl.fleet.profile import RATES, DeviceProfile
from edgefl.network.client_links import ClientLinks
from edgefl.record.rounds import RoundRow
from edgefl.record.sensitivity import DEVICES, DRAWS, OWN, Condition, Retimed, write_retimed
from edgefl.record.tables import SENSITIVITY
from edgefl.rerun.finished_run import FinishedRun
from edgefl.scheduling.blocks.base import BlockForecast, BlockScheduler
from edgefl.scheduling.selection.base import Facts, Selector
from edgefl.simulation.run import simulate_run
from edgefl.torch_settings import neutral_torch

Part = TypeVar("Part", bound=BaseModel)

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
    recordings: dict[tuple[str, int], Recording] = {}
    for label in run.labels:
        try:
            own = {entry.seed: run.recording(label, entry.seed, untrained=untrained) for entry in run.entries[label]}
        except UserError as error:
            refused[label] = str(error)
            continue
        recordings |= {(label, seed): recording for seed, recording in own.items()}
        if decided := sorted({what for recording in own.values() for _, what, _ in recording.timed}):
            held[label] = decided
    if not recordings:
        raise UserError("no method of this run was trained to its end, so no method can be re-timed", file=str(path))
    rounds = {(label, entry.seed): entry.rounds for label in run.labels for entry in run.entries[label]}
    tables: dict[str, list[pa.Table]] = {label: [] for label in run.labels}
    for seed in run.seeds:
        world = world_of(run.scenario, seed)
        links = client_links_of(run.scenario, world)
        for condition in conditions:
            for (label, own_seed), recording in recordings.items():
                if own_seed != seed:
                    continue
                try:
                    last = rounds[label, seed]
                    rows = _retimed(run, label, recording, rounds=last, world=world, links=links, condition=condition)
                except UserError as error:
                    refused.setdefault(label, str(error))
                else:
                    tables[label].append(_table(label, seed, condition, rows))
    kept = [table for label in run.labels if label not in refused for table in tables[label]]
    whole = pa.concat_tables([SENSITIVITY.empty_table(), *kept]).unify_dictionaries()
    return write_retimed(path, Retimed(whole, held, refused))


def _retimed(
    run: FinishedRun,
    label: str,
    recording: Recording,
    *,
    rounds: int,
    world: SharedWorld,
    links: ClientLinks,
    condition: Condition,
) -> list[RoundRow]:
    """The rounds of a method with one seed under a condition."""
    if not rounds:
        return []
    setup = run.setup(label, recording, world=world, links=links, bandwidth=condition.bandwidth, draw=condition.draw)
    profiles = tuple(at_bound(profile, condition.devices) for profile in setup.fleet.profiles)
    setup = replace(setup, fleet=replace(setup.fleet, profiles=profiles))
    timed = {what for _, what, _ in recording.timed}
    if "blocks" in timed:
        setup = replace(setup, scheduler=HeldScheduler(recording.alphas))
    if "selection" in timed:
        setup = replace(setup, selector=HeldSelector(recording.cohorts))
    outcome = simulate_run(setup)
    if outcome.rounds < rounds:
        why = outcome.untrained or "the run would end"
        raise UserError(f"time affects what is trained: after round {outcome.rounds} of {rounds}, {why}")
    return outcome.rows[:rounds]


def _table(label: str, seed: int, condition: Condition, rows: Sequence[RoundRow]) -> pa.Table:
    constant = {"label": label, "seed": seed, **condition._asdict()}
    columns: dict[str, list[Any]] = {
        **{name: [each] * len(rows) for name, each in constant.items()},
        "round": [row.round for row in rows],
        "seconds": [row.seconds for row in rows],
        "bytes": list(itertools.accumulate(row.bytes_down + row.bytes_up for row in rows)),
        "joules": list(itertools.accumulate(row.joules for row in rows)),
    }
    return pa.table({name: pa.array(columns[name], SENSITIVITY.field(name).type) for name in SENSITIVITY.names})


class HeldSelector(Selector):
    """Selects the clients that the finished run selected, by round; for other rounds, the first clients."""

    def __init__(self, cohorts: Mapping[int, Sequence[int]]) -> None:
        self._cohorts = cohorts

    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        """The same clients as in the finished run."""
        held = self._cohorts.get(round)
        return available[:cohort] if held is None else np.array(held, np.int64)


class HeldScheduler(BlockScheduler):
    """Sends each client as many blocks as in the finished run, by round; for other rounds, one block each."""

    def __init__(self, alphas: Mapping[int, Mapping[int, int]]) -> None:
        self._alphas = alphas

    def choose(self, round: int, cohort: Sequence[int], forecast: BlockForecast | None = None) -> dict[int, int]:
        """The same blocks as in the finished run."""
        held = self._alphas.get(round, {})
        return {client: held.get(client, 1) for client in cohort}


def at_bound(profile: DeviceProfile, bound: Bound) -> DeviceProfile:
    """Return the profile without uncertainty: its speeds, overheads and powers give this bound of seconds and joules.

    Memory and battery are unchanged, because they determine which clients can participate.

    >>> from edgefl.fleet import load_profile
    >>> profile = load_profile("raspberry-pi-4")
    >>> [value(at_bound(profile, bound).compute.fp32_achievable) / 1e9 for bound in ("low", "nominal", "high")]
    [22.21, 20.16, 18.3]
    """
    changed = {"compute": _fixed(profile.compute, bound), "power": _fixed(profile.power, bound)}
    return profile.model_copy(update=changed)


def _fixed(part: Part, bound: Bound) -> Part:
    changes: dict[str, Any] = {}
    for name in type(part).model_fields:
        found = getattr(part, name)
        if isinstance(found, Estimate):
            changes[name] = value(found, opposite(bound) if name in RATES else bound)
        elif isinstance(found, BaseModel):
            changes[name] = _fixed(found, bound)
        elif isinstance(found, tuple):
            changes[name] = tuple(_fixed(each, bound) if isinstance(each, BaseModel) else each for each in found)
    return part.model_copy(update=changes)
