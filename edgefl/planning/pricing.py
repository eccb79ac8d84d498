"""Published rounds priced on devices: what the rounds that a paper reports cost in a scenario's world."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import brentq

from edgefl.errors import UserError, locating
from edgefl.experiment.step_costs import StepCosts
from edgefl.experiment.wiring import SharedWorld, step_costs, world_for, world_of
from edgefl.fleet import Bound, DeviceProfile, load_profile, step_seconds
from edgefl.fleet.changed_profile import slower
from edgefl.planning.observation import BOUNDS, MethodPlan, Plan, Range
from edgefl.planning.planning import plan, untrained_rounds
from edgefl.scenario import Scenario, with_overrides
from edgefl.simulation.work import batch_counts
from edgefl.torch_settings import neutral_torch

SIMULATED = 20
"""Rounds that are simulated for each method, link rate and bound of the devices, unless a number is given."""

SEARCHED = 1e3
"""Break-even rates are searched up to this factor above and below the scenario's."""


class PublishedRounds(NamedTuple):
    """Rounds of a method in a paper: those to the accuracy ``goal``, or those after which it had an ``accuracy``."""

    method: str
    goal: str  # 47 %, or round 500
    rounds: int
    bound: Literal["", ">", "<"]  # the paper states only that there are more, or fewer
    accuracy: float | None  # None: the goal itself
    source: str


class Pays(NamedTuple):
    """The rates of clients' links with which the published rounds take less time than the baseline's.

    ``rate`` is the usual downlink of the median client in bit/s, where all client links have the same factor.
    """

    at: Literal["every rate", "no rate", "below", "above"]
    rate: float | None = None


@dataclass(frozen=True)
class Price:
    """The published rounds of one method on one fleet.

    Bytes, joules and FLOPs are those of all clients together. ``ratio`` is the nominal time over that of the baseline's
    published rounds to the same goal, and ``pays`` when it is below 1: with devices whose local training takes the
    lowest, nominal and highest seconds that their profiles allow, the same for both methods. Both are ``None`` for
    the baseline, and where the paper states only bounds for both methods.
    """

    fleet: str  # the profile, or the scenario's name
    published: PublishedRounds
    seconds_a_round: float
    seconds: Range
    bytes: float
    joules: Range
    flops: float
    ratio: float | None
    pays: dict[Bound, Pays] | None


@dataclass(frozen=True)
class Prices:
    """All prices; ``planned`` has the simulated rounds of each fleet and ``rate`` the present rate of the links."""

    scenario: str
    baseline: str
    rate: float
    prices: tuple[Price, ...]
    planned: tuple[Plan, ...]


def published_rounds(scenario: Scenario, labels: Sequence[str]) -> list[PublishedRounds]:
    """The rounds in a scenario's ``published:`` by goal: those to an accuracy, else those at which it has accuracies.

    >>> from edgefl.scenario import load_scenario
    >>> published_rounds(load_scenario("papers/fedmlb/table1_cifar100_100clients"), ["fedmlb"])[0][:4]
    ('fedmlb', '47 %', 488, '')
    """
    found = list(_rounds_to(scenario)) or list(_rounds_of(scenario))
    goals = list(dict.fromkeys(each.goal for each in found))
    first = {(each.goal, each.method): each for each in reversed(found)}
    known = [first[goal, label] for goal in goals for label in labels if (goal, label) in first]
    if not known:
        raise UserError("expected numbers of rounds, or accuracies, of these methods", field="published")
    return known


def _rounds_to(scenario: Scenario) -> Iterator[PublishedRounds]:
    for each in scenario.published:
        if each.metric == "rounds_to" and each.value is not None and each.accuracy is not None:
            bound: Literal["", ">", "<"] = ">" if each.more_than else "<" if each.less_than else ""
            goal = f"{100 * each.accuracy:g} %"
            yield PublishedRounds(each.method, goal, round(each.value), bound, None, each.source)


def _rounds_of(scenario: Scenario) -> Iterator[PublishedRounds]:
    for each in scenario.published:
        if each.metric in ("accuracy", "accuracy_best", "accuracy_ema") and each.seconds is each.bytes is None:
            rounds = each.round or scenario.training.rounds
            if each.value is not None:
                yield PublishedRounds(each.method, f"round {rounds}", rounds, "", each.value, each.source)


@neutral_torch()
def price(
    scenario: Scenario,
    *,
    on: Sequence[str] = (),
    methods: Sequence[str] | None = None,
    rounds: int | None = None,
    seed: int | None = None,
) -> Prices:
    """Multiply the published rounds by what a simulated round costs, and search the rates at which methods break even.

    ``on`` are profiles, each of which forms a whole fleet on the scenario's first link, with measured costs of steps;
    if not given, the fleet is the scenario's. The baseline is the first of ``methods``, or of the scenario. A method is
    left out on a fleet where no update arrives. ``rounds`` (:data:`SIMULATED`) and ``seed`` are those of
    :func:`~edgefl.planning.planning.plan`.

    A break-even is searched between a thousandth and a thousand times the present rates. It is taken to be the only
    one, because the seconds of a round are nearly linear in the time that a link needs for a byte.

    Raises:
        UserError: If the scenario has no published rounds of these methods.
    """
    labels = list(methods or [each.label for each in scenario.methods])
    published = published_rounds(scenario, labels)
    labels = [label for label in labels if label in {each.method for each in published}]
    found: list[Price] = []
    plans: list[Plan] = []
    rate = 0.0
    for name in on or [""]:
        if name:
            with locating(file="--on"):
                load_profile(name)
        alone = {"fleet": [{"profile": name, "share": 1, "link": scenario.fleet[0].link}], "cost": {"kind": "measured"}}
        there = with_overrides(scenario, alone) if name else scenario
        made = plan(there, methods=labels, rounds=rounds or SIMULATED, seed=seed)
        simulated = _Simulated(there, labels, made)
        rate = simulated.rate
        plans.append(made)
        arrive = {each.label for each in made.methods if each.in_vain is None}
        priced = [each for each in published if each.method in arrive]
        found += [_price(name or scenario.name, simulated, each, priced) for each in priced]
    return Prices(scenario.name, labels[0], rate, tuple(found), tuple(plans))


class _Simulated:
    """Rounds of each method without training, with other links and devices."""

    def __init__(self, scenario: Scenario, labels: Sequence[str], made: Plan) -> None:
        self._scenario, self._made, self.baseline = scenario, made, labels[0]
        self._world = world_of(scenario, made.seed)
        self._costs = step_costs(scenario, labels)
        self.plans = {each.label: each for each in made.methods}
        self.rate = float(np.median(self._world.links.usual("down")))
        self.seconds = cache(self._seconds)

    def _seconds(self, label: str, bound: Bound = "nominal", slowdown: float = 1.0) -> float:
        """Mean seconds of a round at a bound of the devices, with links of 1 / ``slowdown`` times the rate."""
        costs = self._costs[label]
        scenario, world = world_for(self._scenario, self._world, costs.method)
        if bound != "nominal":
            profiles = tuple(_at_bound(each, costs, world, bound) for each in world.fleet.profiles)
            world = replace(world, fleet=replace(world.fleet, profiles=profiles))
        if slowdown != 1.0:
            world = replace(world, links=world.links.scaled(1 / slowdown))
        rounds = self._made.rounds
        rows = untrained_rounds(scenario, scenario.method(label), world, costs, rounds).rows[:rounds]
        return rows[-1].seconds / len(rows)

    def pays(self, one: PublishedRounds, other: PublishedRounds, bound: Bound) -> Pays:
        """The rates with which the rounds of one take less time than those of the other."""

        def saved(slowdown: float) -> float:
            theirs, own = (each.rounds * self.seconds(each.method, bound, slowdown) for each in (other, one))
            return theirs - own

        slow, fast = saved(SEARCHED) > 0, saved(1 / SEARCHED) > 0
        if slow == fast:
            return Pays("every rate" if slow else "no rate")
        # Seconds are nearly linear in the slowdown, so few simulations are enough.
        return Pays("below" if slow else "above", self.rate / brentq(saved, 1 / SEARCHED, SEARCHED, rtol=1e-5))


def _at_bound(profile: DeviceProfile, costs: StepCosts, world: SharedWorld, bound: Bound) -> DeviceProfile:
    """The device at which the local training of a client with the median of images takes the bound of its seconds."""
    batches = batch_counts(costs.method.local, int(np.median(world.samples)))

    def seconds(bound: Bound) -> float:
        steps = {size: costs.step(costs.model.depth, size, 0, profile.backend).operators for size in batches}
        return sum(count * step_seconds(profile, steps[size], bound=bound) for size, count in batches.items())

    return slower(profile, seconds(bound) / seconds("nominal"))


def _price(fleet: str, simulated: _Simulated, each: PublishedRounds, published: Sequence[PublishedRounds]) -> Price:
    made: MethodPlan = simulated.plans[each.method]
    other = next((one for one in published if (one.method, one.goal) == (simulated.baseline, each.goal)), each)
    compared = other is not each and not (each.bound and other.bound)
    own = Range.of(lambda bound: each.rounds * simulated.seconds(each.method, bound))
    return Price(
        fleet=fleet,
        published=each,
        seconds_a_round=simulated.seconds(each.method),
        seconds=own,
        bytes=each.rounds * (made.bytes_down + made.bytes_up),
        joules=Range.of(lambda bound: each.rounds * getattr(made.joules, bound)),
        flops=each.rounds * made.flops,
        ratio=own.nominal / (other.rounds * simulated.seconds(other.method)) if compared else None,
        pays={bound: simulated.pays(each, other, bound) for bound in BOUNDS} if compared else None,
    )
