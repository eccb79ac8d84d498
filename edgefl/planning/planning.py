"""Plan a scenario: simulate some rounds without training and summarize them."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgefl.errors import UserError
from edgefl.experiment.precision_advice import precision_advice
from edgefl.experiment.run import run
from edgefl.experiment.step_costs import StepCosts
from edgefl.experiment.summary import EarlyEnd
from edgefl.experiment.wiring import SharedWorld, setup_of, step_costs, world_for, world_of
from edgefl.fleet import DeviceProfile, FleetGroup, step_evidence
from edgefl.fleet.figure import value
from edgefl.network.transport import SPREAD
from edgefl.planning.observation import BudgetPlan, DevicePlan, MethodPlan, Observation, Plan, Range, work_seconds
from edgefl.record.events import Listener
from edgefl.record.figures import finite, spent_by_round
from edgefl.record.rounds import RoundRow, columns_of
from edgefl.report import RunResult
from edgefl.report.timeline.data import Timeline, timeline_of
from edgefl.report.timeline.usage import Bottleneck, bottleneck_counts, bottlenecks_of
from edgefl.scenario import Scenario, load_scenario, with_overrides
from edgefl.scenario.methods import ScenarioMethod
from edgefl.scenario.overrides import Overrides, blamed, parse_overrides
from edgefl.scenario.rehearsal import check_last_batches
from edgefl.simulation.cost_specs import SecondsCost
from edgefl.simulation.run import Outcome, simulate_run
from edgefl.simulation.work import WorkModel, batch_counts, local_seconds
from edgefl.torch_settings import neutral_torch
from edgefl.training.job import NeutralLearner
from edgefl.units import at_most, slack
from edgefl.wording import counted


def _device_plan(
    scenario: Scenario, group: FleetGroup, clients: list[int], seen: Observation, rows: Sequence[RoundRow]
) -> DevicePlan:
    profile = group.profile
    if not isinstance(profile, DeviceProfile):
        raise TypeError("expected a scenario's fleet, whose profiles are embedded")
    costs, blocks, options = seen.costs, seen.costs.model.depth, seen.costs.method.local
    works = [seen.model.of(client, blocks) for client in clients]
    devices = [seen.model.fleet.profile_of(client) for client in clients]
    room = [value(each.memory.training) for each in devices]
    refused = sum(not work.fits for work in works)
    peak = max((work.peak_memory_bytes for work in works), default=0.0)
    smallest = devices[int(np.argmin(room))] if devices else profile
    training = Range.of(lambda bound: value(smallest.memory.training, bound))
    steps = sorted({(work.alpha, size, work.level, profile.backend) for work in works for size in work.batches})
    mine = set(clients)
    total = seen.total(len(rows), mine)
    count = int(total["participations"])
    down, up = (_mean(bytes, count) for bytes in (total["bytes_down"], total["bytes_up"]))
    over = scenario.round_overhead
    framework = [over.before_training(each, down or 0) + over.before_sending(each, up or 0) for each in devices]
    starts = [total["first"] / max(1, count) * over.first / each.core_speed for each in devices]
    closing = sum(row.critical_client in mine for row in rows)
    typical, level = int(np.median(seen.model.samples[clients])) if mine else 0, works[0].level if works else 0
    batches = batch_counts(options, typical)
    usual = {size: costs.step(blocks, size, level, profile.backend) for size in batches}
    alone = local_seconds(profile, usual, batches, None if seen.given_seconds else options.input)
    if computed := total["done.compute"]:
        seconds = Range.of(lambda bound: total[f"compute_seconds.{bound}"] / computed)
    else:
        seconds = work_seconds(profile, costs, blocks, batches, level)
    evidence = step_evidence(profile, (costs.step(*step).operators for step in steps))
    return DevicePlan(
        device=profile.name,
        link=group.link,
        evidence="declared by cost.methods" if seen.given_seconds else evidence,
        clients=len(clients),
        refused=refused,
        why=_why(peak, training, "the device" if len({*room}) == 1 else "the smallest") if refused else None,
        peak_memory_bytes=peak,
        training_memory_bytes=training,
        participations=count,
        compute_seconds=seconds,
        download_seconds=_mean(total["download_seconds"], max(count, total["done.down"])),  # none: all was prefetched
        upload_seconds=_mean(total["upload_seconds"], total["done.up"]),
        reading_seconds=seconds.nominal * alone.waiting / alone.training if alone.waiting else 0.0,
        framework_seconds=math.fsum([*framework, *starts]) / max(1, len(devices)),
        bytes_down=down,
        bytes_up=up,
        joules=Range.of(lambda bound: total[f"joules.{bound}"] / count) if count else None,
        closes=closing / len(rows) if rows else 0.0,
        lost={fate: lost / count for fate, lost in sorted(_lost(total))} if count else {},
    )


def _mean(total: float, count: float) -> float | None:
    return total / count if count > 1e-9 else None


def _lost(total: Mapping[str, float]) -> list[tuple[str, float]]:
    return [(name.removeprefix("lost."), count) for name, count in total.items() if name.startswith("lost.")]


def _why(peak: float, training: Range, device: str) -> str:
    needs, has = (_megabytes(number) for number in (peak, training.nominal))
    doubt = "" if training.high < peak else f"; its profile's highest figure, {_megabytes(training.high)}, is enough"
    return f"training needs {needs}, {device} has {has} for it{doubt}"


def _megabytes(number: float) -> str:
    return f"{number / 1e6:.{max(0, 1 - math.floor(math.log10(number / 1e6 or 1)))}f} MB" if number else "0 MB"


PARTICIPATIONS = 3000
"""Client participations that a plan simulates, over all methods, unless a number of rounds is given."""

FEWEST_ROUNDS = 5


def planned_rounds(scenario: Scenario, methods: int) -> int:
    """Return how many rounds a plan simulates for each method: all, or as many as 3,000 participations allow.

    >>> from edgefl.scenario import load_scenario
    >>> planned_rounds(load_scenario("5g_100clients"), methods=5)
    60
    """
    affordable = PARTICIPATIONS // (scenario.training.cohort * methods)
    return min(scenario.training.rounds, max(FEWEST_ROUNDS, affordable))


@neutral_torch()
def plan(
    scenario: Scenario, *, methods: Sequence[str] | None = None, rounds: int | None = None, seed: int | None = None
) -> Plan:
    """Estimate what the scenario's methods cost, without training.

    Some rounds (:func:`planned_rounds`) are simulated exactly as in a run with the same seed, but with placeholder
    numbers in place of training. So the means per round equal those of that run, contention included, as long as no
    decision reads training results (losses, FedBR's bandit). The seed is the scenario's first if not given.
    """
    chosen = [scenario.method(label) for label in methods] if methods else list(scenario.methods)
    amount = planned_rounds(scenario, len(chosen)) if rounds is None else min(rounds, scenario.training.rounds)
    seed = scenario.seeds[0] if seed is None else seed
    world = world_of(scenario, seed)
    costs = step_costs(scenario, [method.label for method in chosen])
    check_last_batches(next(iter(costs.values())).model, [each.method for each in costs.values()], world.samples)
    plans = [_method_plan(scenario, method, world, costs[method.label], amount) for method in chosen]
    spread = SPREAD if scenario.network.transport.queue == "fifo" else None
    return Plan(scenario.name, seed, amount, tuple(plans), spread, precision_advice(scenario, "auto"))


@dataclass(frozen=True)
class PlannedSetting:
    """The plan of a scenario with the values of a ``setting``, by dotted path, and by label why methods are refused.

    Without a plan, all methods are.
    """

    setting: Mapping[str, Any]
    plan: Plan | None
    refused: Mapping[str, str]


def plan_settings(
    scenario: str,
    changes: Overrides,
    settings: Sequence[Mapping[str, Any]],
    *,
    methods: Sequence[str] | None = None,
    rounds: int | None = None,
    seed: int | None = None,
) -> Iterator[PlannedSetting]:
    """Yield :func:`plan` with each setting; UserError at the end if no method can be planned with any of them."""
    first: UserError | None = None
    planned = False
    for setting in settings:
        texts = [f"{path}={json.dumps(value, default=str)}" for path, value in setting.items()]
        overrides = [*parse_overrides(changes), *parse_overrides(texts, "--grid")]
        plans, refused = dict[str, Plan](), dict[str, str]()
        label = ""  # of all methods
        try:
            chosen = load_scenario(scenario, overrides)
            labels = [chosen.method(each).label for each in methods or [each.label for each in chosen.methods]]
        except UserError as error:
            first, refused[label], labels = first or error, _unplaced(error), []
        for label in labels:
            try:
                count = planned_rounds(chosen, len(labels)) if rounds is None else rounds
                plans[label] = plan(chosen, methods=[label], rounds=count, seed=seed)
            except UserError as error:
                first, refused[label] = first or blamed(error, overrides, scenario), _unplaced(error)
        made = [replace(each, methods=tuple(one.methods[0] for one in plans.values())) for each in plans.values()]
        planned |= bool(made)
        yield PlannedSetting(setting, made[0] if made else None, refused)
    if first is not None and not planned:
        raise first


def _unplaced(error: UserError) -> str:
    return error.message if error.field is None else f"{error.field}: {error.message}"


def _method_plan(
    scenario: Scenario, method: ScenarioMethod, world: SharedWorld, costs: StepCosts, rounds: int
) -> MethodPlan:
    scenario, world = world_for(scenario, world, costs.method)
    local, submodels = costs.method.local, costs.method.submodels
    model = WorkModel(costs.step, world.fleet, world.samples, local, lambda _: None, submodels)
    seen = Observation(model, costs, given_seconds=isinstance(scenario.cost, SecondsCost))
    early = EarlyEnd(rounds)
    outcome = untrained_rounds(scenario, method, world, costs, rounds, seen, early)
    rows = outcome.rows[:rounds]
    budgets = tuple(_budget_plan(kind, limit, rows, scenario) for kind, limit in scenario.budgets.limits().items())
    if scenario.stop != "rounds":
        kept = min((budget.rounds for budget in budgets), default=len(rows))
        rows = rows[: max(1, kept)]
    in_vain = _in_vain(outcome, rows, rounds, early)
    if in_vain is not None:
        # No further rounds will spend the rest of these budgets.
        budgets = tuple(budget for budget in budgets if not (budget.lasts or budget.foreseen))
    sampled = [group.sample.devices if group.sample is not None else 1 for group in scenario.fleet]
    entry = np.repeat(np.arange(len(sampled)), sampled)[world.fleet.group]  # of each client
    groups = [(group, np.flatnonzero(entry == index).tolist()) for index, group in enumerate(scenario.fleet)]
    total = seen.total(len(rows))
    joules = sum(row.joules for row in rows)
    scale = joules / total["joules.nominal"] if total["joules.nominal"] else 1.0
    count = max(1, len(rows))
    return MethodPlan(
        label=method.label,
        rounds=len(rows),
        seconds=rows[-1].seconds / count if rows else None,
        server_seconds=sum(row.amounts["server_seconds"] for row in rows) / count,
        evaluation_seconds=sum(row.amounts["evaluation_seconds"] for row in rows) / count,
        bytes_down=sum(row.bytes_down for row in rows) / count,
        bytes_up=sum(row.bytes_up for row in rows) / count,
        flops=sum(row.flops for row in rows) / count,
        joules=Range.of(lambda bound: total[f"joules.{bound}"] * scale / count),
        participants=sum(row.participants for row in rows) / count,
        aggregated=sum(row.aggregated for row in rows) / count,
        breaks=total["breaks"] / count,
        wait_seconds=total["wait_seconds"] / max(1, total["breaks"]),
        holds_back=_holds_back(rows, timeline_of(seen.log), total),
        in_vain=in_vain,
        budgets=budgets,
        devices=tuple(_device_plan(scenario, *each, seen, rows) for each in groups),
        secure_aggregation=outcome.secure,
        privacy=outcome.privacy,
        epsilon=finite(outcome.spent.get("epsilon")),
    )


def untrained_rounds(
    scenario: Scenario, method: ScenarioMethod, world: SharedWorld, costs: StepCosts, rounds: int, *listeners: Listener
) -> Outcome:
    """Simulate rounds without training, and one more, if there is one, because the last one prefetches for it."""
    setup = setup_of(scenario, method, world, costs, learner=NeutralLearner(), trains=False, listeners=listeners)
    return simulate_run(replace(setup, rounds=min(rounds + 1, scenario.training.rounds), stop="rounds"))


def plan_starts(
    scenario: Scenario, starts: Sequence[str], folder: Path, methods: Sequence[str] | None = None
) -> list[RunResult]:
    """Run the scenario without training at each start, each in a directory of its own within ``folder``."""
    moved = [with_overrides(scenario, [f"start={start}"]) for start in starts]
    return [RunResult(run(each, out=folder / str(n), methods=methods, train=False)) for n, each in enumerate(moved)]


def _budget_plan(kind: str, limit: float, rows: Sequence[RoundRow], scenario: Scenario) -> BudgetPlan:
    last = scenario.training.rounds
    spent = spent_by_round(columns_of(rows))[kind].tolist()
    paid = sum(at_most(each, limit) for each in spent)
    if paid < len(rows):
        return BudgetPlan(kind, limit, paid, rows[paid - 1].seconds if paid else 0.0, lasts=False, foreseen=False)
    if len(rows) >= last or not rows or not spent[-1]:
        return BudgetPlan(kind, limit, len(rows), rows[-1].seconds if rows else 0.0, lasts=True, foreseen=False)
    if kind == "client_bytes":
        reach = max(len(rows), _busiest_reaches(limit, rows, scenario.data.clients))
    else:
        reach = math.floor((limit + slack(limit)) / (spent[-1] / len(rows)))
    rounds = min(reach, last)
    return BudgetPlan(kind, limit, rounds, rounds * rows[-1].seconds / len(rows), lasts=reach >= last, foreseen=True)


def _busiest_reaches(limit: float, rows: Sequence[RoundRow], clients: int) -> int:
    """Return the rounds after which the most often selected of ``clients`` has spent the limit.

    With random selection, a client participates λ times in expectation and the busiest of K clients about
    λ + √(2 λ ln K) times: the normal approximation of the maximum of K Poisson variables.
    """
    participations: int = sum(row.participants for row in rows)
    if not participations:
        return 0
    times: float = limit * participations / sum(row.bytes_down + row.bytes_up for row in rows)
    spread = math.sqrt(2 * math.log(clients)) if clients > participations / len(rows) else 0.0
    root = (math.sqrt(spread**2 + 4 * times) - spread) / 2
    return math.floor(root**2 * clients * len(rows) / participations)


def _in_vain(outcome: Outcome, rows: Sequence[RoundRow], rounds: int, early: EarlyEnd) -> str | None:
    """Return why no update arrives in the planned rounds, or why the run stalls early; ``None`` if neither happens."""
    if outcome.reason == "stalled" and outcome.rounds < rounds:
        when = f"after {counted(outcome.rounds, 'round')}" if outcome.rounds else "in its first round"
        return f"the run stalls {when}: {early.why(outcome)}"
    if not any(row.aggregated for row in rows):
        return f"no update arrives in {counted(min(rounds, outcome.rounds), 'round')}{early.fates()}"
    return None


def _holds_back(rows: Sequence[RoundRow], timeline: Timeline, total: Mapping[str, float]) -> str | None:
    """Return what limits the rounds, by the rule of a run's page; ``None`` if no update ever arrives."""
    if any(row.critical_client >= 0 for row in rows):
        return _in_words(bottleneck_counts(bottlenecks_of(timeline)[: len(rows)]))
    if not any(row.aggregated for row in rows):
        return None
    lost = ", ".join(f"{count:g} {fate}" for fate, count in sorted(_lost(total), key=lambda each: -each[1]))
    return f"clients that return no update{lost and f' ({lost})'}"


_PHASES = {"compute": ("computing", "on "), "download": ("downloads", "over the "), "upload": ("uploads", "over the ")}


def _in_words(counts: Sequence[tuple[Bottleneck, int]]) -> str:
    (limit, count), *_ = counts
    phase, preposition = _PHASES.get(limit.phase, ("waiting", "for "))
    name = f"link {limit.name}" if "→" in limit.name else limit.name
    rounds = sum(number for each, number in counts if each.phase == limit.phase)
    of_all = f"({rounds} of {counted(sum(number for _, number in counts), 'round')})"
    if count == rounds:
        return f"{phase} {preposition}{name} {of_all}"
    return f"{phase} {of_all}, most often {preposition}{name} ({count})"
