"""``edgefl schedule``: compare schedulers over the same rounds of a world, without training."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import or_
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import UserError
from edgefl.experiment.round_optimum import LeastRoundSeconds
from edgefl.experiment.summary import EarlyEnd
from edgefl.experiment.wiring import SharedWorld, reads_labels, setup_of, step_costs, world_of
from edgefl.record.events import Event, Listener
from edgefl.report.quantities import quantity
from edgefl.report.table import Table, figures, words
from edgefl.scenario import Scenario, with_overrides
from edgefl.scenario.rehearsal import check_last_batches
from edgefl.scheduling.bandwidth.base import ALLOCATIONS
from edgefl.scheduling.selection.base import SELECTORS
from edgefl.simulation.run import simulate_run
from edgefl.simulation.setup import Setup
from edgefl.torch_settings import neutral_torch
from edgefl.training.faults import PartFault
from edgefl.training.job import NeutralLearner
from edgefl.wording import listed
from edgefl.yaml_file import parse_yaml

LOSSES = frozenset({"loss", "local_losses"})
"""Names of the losses that a selector may read."""


@dataclass(frozen=True)
class SchedulerFigures:
    """What one scheduler's rounds cost, and whom they reached; ``None``: there is no such figure.

    ``makespan`` (with what precedes a round, such as asking for losses), ``joules`` and ``aggregated`` are means over
    rounds; ``jain`` is the index of the clients' numbers of aggregated updates. ``clients_seen`` and ``samples_seen``
    are shares, of clients of which an update was aggregated and of the samples that they have; ``rounds_to_cover`` is
    the round after which all clients had taken part. ``ratio_to_optimum`` compares a round's seconds with a certified
    lower bound on those of any cohort with as many updates, and ``no_bound`` says why there is none. Without training,
    all losses that a scheduler reads are equal.
    """

    rounds: int
    makespan: float | None
    joules: float | None
    aggregated: float | None
    jain: float | None
    clients_seen: float
    samples_seen: float
    rounds_to_cover: int | None
    ratio_to_optimum: float | None
    no_bound: str | None = None
    reads_losses: bool = False
    ended: str | None = None


@dataclass(frozen=True)
class SchedulerComparison:
    """The figures of schedulers, with the work and bytes of a ``method``, and why others are ``left_out``."""

    scenario: str
    method: str
    seed: int
    rounds: int
    schedulers: dict[str, SchedulerFigures]
    left_out: dict[str, str] = field(default_factory=dict)

    def table(self) -> Table:
        """A row for each scheduler, the one with the shortest rounds first."""
        order = sorted(self.schedulers, key=lambda name: self.schedulers[name].makespan or math.inf)
        found = [self.schedulers[name] for name in order]
        columns = [
            words("scheduler", order),
            figures("round", [each.makespan for each in found], "seconds"),
            figures("× best", [each.ratio_to_optimum for each in found], "number"),
            figures("energy", [each.joules for each in found], "joules"),
            figures("even", [each.jain for each in found], "number"),
            figures("clients", [each.clients_seen for each in found], "fraction"),
            figures("samples", [each.samples_seen for each in found], "fraction"),
            figures("rounds to all", [each.rounds_to_cover for each in found], "count"),
        ]
        title = [sentence] if (sentence := self.sentence()) else []
        left_out = [f"{name} is left out: {why}" for name, why in self.left_out.items()]
        return Table(columns, [*_notes(self), *left_out], title)

    def _repr_html_(self) -> str:
        return self.table().notebook()

    def sentence(self) -> str:
        """The result in one sentence; empty if no scheduler had an update."""
        timed = {name: each.makespan for name, each in self.schedulers.items() if each.makespan is not None}
        even = {name: each.jain for name, each in self.schedulers.items() if each.jain is not None}
        if not timed or not even:
            return ""
        least, most = min(timed.values()), max(even.values())
        quick = [name for name, each in timed.items() if quantity(each, "seconds") == quantity(least, "seconds")]
        fair = [name for name, each in even.items() if quantity(each, "number") == quantity(most, "number")]
        return f"Shortest rounds:  {listed(quick)}.   Most even:  {listed(fair)}."


@neutral_torch()
def compare_schedulers(
    scenario: Scenario,
    *,
    rounds: int = 1000,
    seed: int | None = None,
    method: str | None = None,
    selections: Sequence[str] | None = None,
) -> SchedulerComparison:
    """Simulate the same rounds under each scheduler, without training.

    Fleet, links, slowdowns and availability are those of the scenario, drawn by the same keys for all schedulers. What
    depends on time, such as availability, may differ between schedulers, because their rounds have different lengths.

    ``selections`` are compared, each as in ``training.selection``; if not given, every selector, and every bandwidth
    allocation under the scenario's selector. ``seed`` and ``method`` are the scenario's first if not given.
    """
    if not scenario.protocol.has_rounds:
        raise UserError(f"expected a protocol with rounds, found {scenario.protocol.kind}", field="protocol.kind")
    chosen = scenario.methods[0] if method is None else scenario.method(method)
    first = scenario.seeds[0] if seed is None else seed
    with_overrides(scenario, {"training.rounds": rounds})  # an invalid number is not a reason to leave each one out
    # Other methods, such as one with overlap, might refuse a selector.
    alone = scenario.model_copy(update={"methods": (chosen,)})
    costs = step_costs(scenario, [chosen.label])[chosen.label]
    found: dict[str, SchedulerFigures] = {}
    left_out: dict[str, str] = {}
    worlds: dict[bool, SharedWorld] = {}
    known: LeastRoundSeconds | None = None
    for name, change in _all(scenario) if selections is None else [(each, {}) for each in selections]:
        try:
            changes = change if selections is None else {"training.selection": parse_yaml(name)}
            there = with_overrides(alone, {"training.rounds": rounds, **changes})
            labels = reads_labels(there, first)
            world = worlds[labels] = worlds.get(labels) or world_of(there, first)
            check_last_batches(costs.model, [costs.method], world.samples)
            seen, early, learner = _Updates(), EarlyEnd(rounds), NeutralLearner()
            setup = setup_of(there, chosen, world, costs, learner=learner, trains=False, listeners=[seen, early])
            known = known or LeastRoundSeconds(there, setup)
            found[name] = _figures(setup, known, seen, early, rounds)
        except (UserError, PartFault) as error:
            bare = UserError(error.message, field=error.field) if isinstance(error, UserError) else error
            if selections is not None:
                raise (bare.located(file=f"--selection {name}") if isinstance(bare, UserError) else bare) from None
            left_out[name] = str(bare)
    return SchedulerComparison(scenario.name, chosen.label, first, rounds, found, left_out)


class _Updates(Listener):
    def __init__(self) -> None:
        self.aggregated: list[list[int]] = []

    def events(self, rows: list[Event]) -> None:
        self.aggregated += [event.facts["clients"] for event in rows if event.kind == "aggregation"]


def _all(scenario: Scenario) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every selector, and every bandwidth allocation under the scenario's own, each as changes of the scenario."""
    selection, bandwidth = scenario.training.selection.name, scenario.training.bandwidth.name
    for name in SELECTORS.names():
        yield name, {} if name == selection else {"training.selection": {"kind": name}}
    for name in ALLOCATIONS.names():
        if name != bandwidth:
            yield f"{selection}, {name}", {"training.bandwidth": {"kind": name}}


def _figures(setup: Setup, known: LeastRoundSeconds, seen: _Updates, early: EarlyEnd, rounds: int) -> SchedulerFigures:
    outcome = simulate_run(replace(setup, stop="rounds"), optimum=known if known.why_not is None else None)
    if outcome.fault is not None:
        raise outcome.fault
    ratios = [row.ratio_to_optimum for row in outcome.rows if not math.isnan(row.ratio_to_optimum)]
    no_bound = None if ratios else known.why_not
    if not ratios and no_bound is None:
        arrived = any(row.aggregated for row in outcome.rows)
        no_bound = "some transfers have fewer bytes than the whole model" if arrived else "no update arrived"
    updates = [client for clients in seen.aggregated for client in clients]
    covered: Iterator[set[int]] = accumulate(map(set, seen.aggregated), or_)
    times = np.bincount(np.array(updates, np.int64), minlength=setup.clients)
    return SchedulerFigures(
        rounds=outcome.rounds,
        makespan=outcome.rows[-1].seconds / outcome.rounds if outcome.rounds else None,
        joules=fmean([row.joules for row in outcome.rows]) if outcome.rows else None,
        aggregated=fmean([row.aggregated for row in outcome.rows]) if outcome.rows else None,
        jain=jain_index(times),
        clients_seen=float((times > 0).mean()),
        samples_seen=float(setup.samples[times > 0].sum() / setup.samples.sum()),
        rounds_to_cover=next((n for n, of in enumerate(covered, 1) if len(of) == setup.clients), None),
        ratio_to_optimum=fmean(ratios) if ratios else None,
        no_bound=no_bound,
        reads_losses=bool(setup.selector.reads & LOSSES),
        ended=None if outcome.rounds >= rounds else early.why(outcome) or outcome.reason,
    )


def jain_index(times: NDArray[np.int64]) -> float | None:
    """Jain's index (Σx)² / (N Σx²) of the clients' numbers of updates (Jain, Chiu and Hawe, DEC-TR-301, 1984).

    It is 1 if all are equal, and k/N if k of N clients have equal numbers and the others none; None if all are 0.

    >>> jain_index(np.array([2, 2, 2])), jain_index(np.array([5, 0, 0, 0]))
    (1.0, 0.25)
    """
    squares = float((times.astype(np.float64) ** 2).sum())
    return None if squares == 0 else float(times.sum()) ** 2 / (len(times) * squares)


def _notes(made: SchedulerComparison) -> list[str]:
    found = made.schedulers
    notes = [
        f"Means over {made.rounds} rounds of {made.method}, seed {made.seed}; nothing was trained. Even: Jain's "
        "index, 1 if all clients take part equally often; × best: relative to the shortest possible round."
    ]
    if blind := [name for name, each in found.items() if each.reads_losses]:
        notes.append(
            f"All losses are 0 without training, so what these do with losses is not shown: {', '.join(blind)}."
        )
    notes += [
        f"No bound on the best round: {why}." for why in sorted({e.no_bound for e in found.values() if e.no_bound})
    ]
    return notes + [f"{name} ended after {e.rounds} rounds: {e.ended}." for name, e in found.items() if e.ended]
