"""The figures of a plan, and what each client spends in a short simulation, collected from its event log."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

from edgefl.experiment.step_costs import StepCosts
from edgefl.fleet import DeviceProfile, compute_joules, idle_joules, transfer_joules
from edgefl.fleet.energy import promotion_joules, tail_joules
from edgefl.fleet.figure import Bound
from edgefl.record.events import Event, Listener, WorkKey
from edgefl.simulation.evaluating import FIRST_DISPATCH
from edgefl.simulation.work import WorkModel, local_seconds


@dataclass(frozen=True)
class Range:
    """A figure at the low, nominal and high bounds of the device profiles' uncertain figures."""

    low: float
    nominal: float
    high: float

    @staticmethod
    def of(figure: Callable[[Bound], float]) -> Range:
        """Return the figure at each of the three bounds.

        >>> Range.of({"low": 1.0, "nominal": 2.0, "high": 4.0}.__getitem__)
        Range(low=1.0, nominal=2.0, high=4.0)
        """
        return Range(figure("low"), figure("nominal"), figure("high"))


@dataclass(frozen=True)
class DevicePlan:
    """The plan of one group of the fleet for one method: of its participations, without evaluations.

    Bytes and joules are means. Seconds are those of a whole phase: what was cut off counts by its part that was done.
    If none was done, those of computing are for the whole model, and those of transfers unknown. ``refused`` clients
    have too little memory for the job (``why``); ``training_memory_bytes`` is what the group's smallest device has for
    it. ``closes`` is the share of the rounds that one of its clients closed, ``lost`` the shares of its participations
    that were lost, by fate.
    """

    device: str
    link: str
    evidence: str
    clients: int
    refused: int
    why: str | None
    peak_memory_bytes: float
    training_memory_bytes: Range
    participations: int
    compute_seconds: Range
    download_seconds: float | None
    upload_seconds: float | None
    reading_seconds: float  # of compute_seconds, those in which training waits for data
    framework_seconds: float  # the scenario's round_overhead
    bytes_down: float | None
    bytes_up: float | None
    joules: Range | None
    closes: float
    lost: dict[str, float]


@dataclass(frozen=True)
class BudgetPlan:
    """How far one budget reaches if it is the only one of the run: to the end of ``rounds``, at most the scenario's.

    ``lasts``: it is not exhausted before the scenario's last round; ``foreseen``: extrapolated from the planned rounds.
    """

    kind: str
    limit: float
    rounds: int
    seconds: float
    lasts: bool
    foreseen: bool


@dataclass(frozen=True)
class MethodPlan:
    """What one method costs per round, summed over clients: means over the planned rounds, up to the end of the run.

    Bytes, FLOPs and joules contain the rounds' evaluations; the bounds of joules and the breaks are of participations.
    ``breaks`` are broken attempts to transfer something, each with a wait of ``wait_seconds``; ``holds_back`` is what
    limits the rounds, and ``in_vain`` why no update arrives or the run stalls early.
    """

    label: str
    rounds: int
    seconds: float | None  # none without a round
    server_seconds: float  # of these, the server's own work
    evaluation_seconds: float  # of these, evaluation on clients
    bytes_down: float
    bytes_up: float
    flops: float
    joules: Range
    participants: float
    aggregated: float
    breaks: float
    wait_seconds: float
    holds_back: str | None
    in_vain: str | None
    budgets: tuple[BudgetPlan, ...]
    devices: tuple[DevicePlan, ...]
    secure_aggregation: Mapping[str, Any] | None = None  # as in summary.json, of the planned rounds; so are the others
    privacy: Mapping[str, Any] | None = None
    epsilon: float | None = None


@dataclass(frozen=True)
class Plan:
    """A scenario's plan.

    ``rounds`` were simulated for each method; ``queue_spread`` is the standard deviation of the logarithm of a
    transfer's share, where shares are drawn; ``advice`` says whether bfloat16 would pay when this machine trains.
    """

    scenario: str
    seed: int
    rounds: int
    methods: tuple[MethodPlan, ...]
    queue_spread: float | None = None
    advice: str | None = None


BOUNDS: tuple[Bound, ...] = ("low", "nominal", "high")


class Observation(Listener):
    """Collects what each client ``spent`` in each round, by name, without evaluations at the round's end.

    ``compute_seconds`` and ``joules`` are by bound: ``joules.low``; ``done`` are the phases of each kind, and ``lost``
    the jobs of each fate. With ``given_seconds`` the scenario gives the training time, so the profile's bounds do not
    affect it. ``model`` has the work of the clients, ``costs`` that of their steps.
    """

    def __init__(self, model: WorkModel, costs: StepCosts, *, given_seconds: bool) -> None:
        self.model = model
        self.costs = costs
        self.given_seconds = given_seconds
        self._ratios: dict[WorkKey, dict[Bound, float]] = {}
        self._works: dict[WorkKey, Event] = {}
        self._sizes: dict[tuple[int, int, str], float] = {}
        self.spent: defaultdict[tuple[int, int], defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.log: list[Event] = []
        self._evaluated: dict[tuple[int, int], float] = {}  # since when, by round and client
        self._started: set[int] = set()  # clients whose framework has started

    def total(self, rounds: int, clients: Container[int] | None = None) -> defaultdict[str, float]:
        """What these clients, or all, spent in the first rounds."""
        total: defaultdict[str, float] = defaultdict(float)
        for (round, client), spent in self.spent.items():
            if round <= rounds and (clients is None or client in clients):
                for name, amount in spent.items():
                    total[name] += amount
        return total

    def events(self, rows: list[Event]) -> None:
        self.log += rows
        for event in rows:
            if event.kind == "work":
                self._ratios[event.work], self._works[event.work] = self._bounds_of(event), event
            elif event.client >= 0 and not self._evaluates(event):
                self._take(event, self.spent[event.round, event.client])

    def _evaluates(self, event: Event) -> bool:
        """True if a client's event belongs to an evaluation; what its radio draws does if that began in one."""
        place = event.round, event.client
        if event.dispatch >= FIRST_DISPATCH:
            self._evaluated.setdefault(place, event.time)
            self._started |= {event.client} if event.kind == "forward" else set()
            return True
        return event.kind == "radio" and event.time - event.seconds >= self._evaluated.get(place, math.inf)

    def _bounds_of(self, event: Event) -> dict[Bound, float]:
        if self.given_seconds:
            return dict.fromkeys(BOUNDS, 1.0)
        profile, level = self.model.fleet.profiles[event.group], int(event.facts.get("level", 0))
        batches = {int(size): count for size, count in event.facts["batches"].items()}
        seconds = work_seconds(profile, self.costs, event.alpha, batches, level)
        return {bound: getattr(seconds, bound) / seconds.nominal if seconds.nominal else 1.0 for bound in BOUNDS}

    def _take(self, event: Event, spent: defaultdict[str, float]) -> None:
        profile, place = self.model.fleet.profile_of(event.client), (event.round, event.client, event.item)
        match event.kind:
            case "compute_start":
                spent["participations"] = 1
                spent["first"] += event.client not in self._started
                self._started.add(event.client)
            case "failure" if event.item == "crash":
                self._started.discard(event.client)
            case "compute_end" | "compute_partial" | "compute_drop":
                full = compute_joules(profile, event.seconds)
                share = event.joules / full if full else 1.0  # of the watts of training: it may wait for data
                work = self.model.of(event.client, event.alpha, int(self._works[event.work].value))
                done = self.model.begun(work, event.value)[0] if event.kind == "compute_drop" else 1.0
                spent["done.compute"] += done
                for bound, ratio in self._ratios[event.work].items():
                    seconds = event.seconds * ratio
                    spent[f"compute_seconds.{bound}"] += seconds
                    spent[f"joules.{bound}"] += compute_joules(profile, seconds, bound=bound) * share
            case "idle" | "radio" | "transfer_end" | "transfer_drop" | "reception":
                for bound in BOUNDS:
                    spent[f"joules.{bound}"] += _joules(event, profile, bound)
                if event.kind == "reception":
                    self._sizes.setdefault(place, event.bytes)
                if event.kind.startswith("transfer") or event.kind == "reception":
                    spent[f"done.{event.item}"] += event.bytes / size if (size := self._sizes[place]) else 1.0
                    spent["bytes_up" if event.item == "up" else "bytes_down"] += event.bytes
                    if event.item in ("up", "down"):
                        spent[f"{event.item}load_seconds"] += event.seconds
            case "transfer_start":
                self._sizes.setdefault(place, event.bytes)  # that of the first attempt
            case "transfer_break":
                spent[f"done.{event.item}"] -= event.bytes / (self._sizes[place] or 1.0)  # they are sent again
                spent["breaks"] += 1
                spent["wait_seconds"] += event.seconds
            case "lost":
                spent[f"lost.{event.item}"] += 1


def _joules(event: Event, profile: DeviceProfile, bound: Bound) -> float:
    if event.kind == "idle":
        return idle_joules(profile, event.seconds, bound=bound)
    if event.kind == "radio":
        promotion = event.item == "promotion"
        return promotion_joules(profile, bound=bound) if promotion else tail_joules(profile, event.seconds, bound=bound)
    return transfer_joules(profile, "up" if event.item == "up" else "down", event.seconds, event.bytes, bound=bound)


def work_seconds(
    profile: DeviceProfile, costs: StepCosts, alpha: int, batches: dict[int, int], level: int = 0
) -> Range:
    """Seconds of a client's local training at the bounds of the profile's figures; ``batches``: steps by batch size."""
    steps = {size: costs.step(alpha, size, level, profile.backend) for size in batches}
    pipeline = costs.method.local.input
    return Range.of(lambda bound: local_seconds(profile, steps, batches, pipeline, bound=bound).training)
