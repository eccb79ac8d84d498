"""The figures of a plan, and what each client spends in a short simulation, collected from its event log."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgefl.experiment.step_costs import StepCosts
from edgefl.fleet import DeviceProfile, compute_joules, idle_joules, transfer_joules
from edgefl.fleet.energy import promotion_joules, tail_joules
from edgefl.fleet.figure import Bound
from edgefl.record.events import Event, Listener, WorkKey
from edgefl.record.figures import QUANTITIES
from edgefl.report.notices import privacy_words
from edgefl.report.quantities import limit, quantity
from edgefl.report.table import Column, Table, figures, words
from edgefl.simulation.evaluating import FIRST_DISPATCH
from edgefl.simulation.work import WorkModel, local_seconds
from edgefl.wording import counted, span

_Place = tuple[int, int, str]


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

    def table(self, more: Sequence[str] = ()) -> Table:
        """A row for each method and device, with the rounds that budgets allow and ``more`` sentences below."""
        return Table(_columns(self), [*_notes(self), *more])

    def _repr_html_(self) -> str:
        return self.table().notebook()


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
        # by round, client and direction: the bytes of its first attempts, those that have arrived, and their ratio
        self._sizes: dict[_Place, float] = {}
        self._moved: dict[_Place, tuple[float, float]] = {}
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
                    self._moves(place, event.bytes, spent)
                    spent["bytes_up" if event.item == "up" else "bytes_down"] += event.bytes
                    if event.item in ("up", "down"):
                        spent[f"{event.item}load_seconds"] += event.seconds
            case "transfer_start" if "first" not in event.facts:  # not sent again
                later = self._sizes.get(place, 0.0) if place in self._moved else 0.0  # a later stage
                self._sizes[place] = max(self._sizes.get(place, 0.0), later + event.bytes)
            case "transfer_break":
                self._moves(place, -event.bytes, spent)  # they are sent again
                spent["breaks"] += 1
                spent["wait_seconds"] += event.seconds
            case "lost":
                spent[f"lost.{event.item}"] += 1

    def _moves(self, place: _Place, bytes: float, spent: defaultdict[str, float]) -> None:
        """Count how much of a phase is done: the bytes that arrived, of those that its transfers have."""
        moved, before = self._moved.get(place, (0.0, 0.0))
        size = self._sizes[place]
        ratio = (moved + bytes) / size if size else before + 1.0
        spent[f"done.{place[2]}"] += ratio - before
        self._moved[place] = moved + bytes, ratio


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


def _columns(made: Plan) -> list[Column]:
    rows = [(method, device) for method in made.methods for device in method.devices]
    devices = [device for _, device in rows]
    closes = [f"{100 * each.closes:.0f} %" for each in devices]
    columns = [
        words("method", [method.label for method, _ in rows]),
        words("device", [each.device for each in devices]),
        Column("clients", [f"{each.clients - each.refused}/{each.clients}" for each in devices]),
        figures("memory", [each.peak_memory_bytes for each in devices], "bytes"),
        figures("compute", [each.compute_seconds.nominal for each in devices], "seconds"),
        figures("of it reading", [each.reading_seconds for each in devices], "seconds"),
        figures("download", [each.download_seconds for each in devices], "seconds"),
        figures("upload", [each.upload_seconds for each in devices], "seconds"),
        figures("framework", [each.framework_seconds for each in devices], "seconds"),
        figures("energy", [None if each.joules is None else each.joules.nominal for each in devices], "joules"),
        Column("last", closes),
    ]
    return [each for each in columns if each.head not in ("of it reading", "framework") or any(each.values)]


def _notes(made: Plan) -> list[str]:
    evidence = {device.device: device.evidence for each in made.methods for device in each.devices}
    notes = [line for each in made.methods for line in _rounds(each)]
    counts = {each.rounds for each in made.methods}
    fewer = min(counts) < made.rounds and any(each.budgets for each in made.methods)
    shown = f"{span(counts)} of " * fewer
    notes.append(
        f"Nothing was trained: means over {shown}{made.rounds} simulated rounds{', those within the budgets' * fewer}, "
        f"seed {made.seed}. Rows: one whole participation; clients: those with enough memory; last: rounds that wait "
        "for it. --json has the bounds."
    )
    notes.append(f"Seconds of a step: {'; '.join(f'{device} {text}' for device, text in evidence.items())}.")
    if made.queue_spread is not None:
        notes.append(f"Links are shared unequally, as drawn by seed {made.seed} (spread {made.queue_spread:g}).")
    return notes + ([f"When this machine trains: {made.advice}."] if made.advice is not None else [])


def _rounds(each: MethodPlan) -> Iterator[str]:
    time = "–" if each.seconds is None else quantity(each.seconds, "seconds")
    costs = [time, quantity(each.bytes_down + each.bytes_up, "bytes"), quantity(each.joules.nominal, "joules")]
    parts = [f"a round takes {', '.join(costs)}"]
    last = {"by the server": each.server_seconds, "evaluation on clients": each.evaluation_seconds}
    if ends := [f"{quantity(seconds, 'seconds')} {what}" for what, seconds in last.items() if seconds]:
        parts.append(f"of it {' and '.join(ends)}")
    if each.aggregated != each.participants:
        parts.append(f"{each.aggregated:.3g} of {each.participants:.3g} updates are aggregated")
    parts += [f"limited by {each.holds_back}"] if each.holds_back is not None else []
    parts += [_reach(budget) for budget in each.budgets if not budget.lasts]
    if each.budgets and all(budget.lasts for budget in each.budgets):
        parts.append(f"all budgets last for {each.budgets[0].rounds} rounds")
    if each.breaks:
        wait = quantity(each.wait_seconds, "seconds")
        parts.append(f"{each.breaks:.3g} broken attempts to transfer a round, each with a wait of {wait}")
    yield f"{each.label}: {'; '.join(parts)}."
    for text in privacy_words(each.secure_aggregation, each.privacy, each.epsilon):
        yield f"{each.label}: {text}."
    if each.in_vain is not None:
        yield f"{each.label}: {each.in_vain}."
    for device in each.devices:
        if device.why is not None:
            which = f"{device.refused} of {device.clients} {device.device}"
            yield f"{each.label}: {which} cannot train this: {device.why}."


def _reach(budget: BudgetPlan) -> str:
    """How many rounds a budget allows: ``21 s last for about 54 rounds``."""
    named = limit(budget.limit, budget.kind) + QUANTITIES[budget.kind].each
    return f"{named} last for {'about ' if budget.foreseen else ''}{counted(budget.rounds, 'round')}"
