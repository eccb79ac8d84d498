"""The figures of a run: each cost, count and share is declared here, once, in :data:`QUANTITIES`.

A run charges amounts to quantities. A quantity is a column of ``rounds.parquet``, a key of ``summary.json`` and of JSON
output, a row of ``--details``, and, if its declaration says so, an x-axis and a budget. A *derived* figure is a
function of other totals, and has no column.
"""

import math
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from edgefl.errors import UserError
from edgefl.record.kinds import F64, I32, I64, LOST, column
from edgefl.record.summary import SeedResult
from edgefl.units import at_most, slack

Floats = NDArray[np.float64]
Source = Callable[[Any], float]


def finite(value: float | None) -> float | None:
    """The value if it is finite, because JSON has no infinity or NaN."""
    return value if value is not None and math.isfinite(value) else None


_SYMBOLS = {"seconds": "s", "bytes": "B", "flops": "FLOP", "joules": "J", "count": "", "number": ""}


class Quantity(NamedTuple):
    """One figure of a run.

    ``unit`` is ``seconds``, ``bytes``, ``flops``, ``joules``, ``count``, ``rounds``, ``number``, ``fraction``, or the
    symbol of another unit, such as ``g``. The ``total`` up to a round is the ``sum`` of the rounds' amounts, the
    largest amount charged (``max``), the ``last`` row's, or the ``mean`` of the rows that have a value.
    """

    name: str  # of its column, and of a budget
    unit: str
    meaning: str = ""  # of its column; a figure without one has no column
    head: str = ""  # its heading in --details; not shown if empty
    limit: str = ""  # its name where a budget of it ends a run; no budget if empty
    axis: str = ""  # its label as an x-axis; the part before a comma is its name for --x
    path: str | None = None  # its place in a seed's entry of summary.json, with dots; its name if None
    total: Literal["sum", "max", "last", "mean"] = "sum"
    whole: bool = False  # tables show that of the whole run, not that of the last round within all limits
    group: str = ""  # the runs that have it, if not all: "blocks", "timeouts", or those in which this is not zero
    each: str = ""  # follows its amount in the words of a budget
    of: Callable[[Any], Any] | None = None  # of a derived figure: its value from the totals
    source: Source | None = None  # what an event of the log adds to it

    @property
    def place(self) -> str:
        """Its place in ``summary.json``; empty if it has none."""
        return self.name if self.path is None else self.path

    @property
    def whole_number(self) -> bool:
        return self.unit in ("bytes", "count")

    @property
    def built_in(self) -> bool:
        return self.name in _BUILT_IN

    def is_of(self, amounts: Container[str]) -> bool:
        """True if a run with these amounts has it; a user's quantity is only one of some runs."""
        return self.built_in or self.name in amounts

    def written(self, totals: Mapping[str, Any]) -> Any:
        """Its value for JSON; ``None`` if it is unknown."""
        value = finite(totals[self.name])
        return value if value is None else int(value) if self.whole_number else float(value)

    @property
    def column(self) -> pa.Field | None:
        """Its column in ``rounds.parquet``; ``None`` if it has none."""
        kind = {"count": I32, "bytes": I64}.get(self.unit, F64)
        meaning = self.meaning
        return column(self.name, kind, _SYMBOLS.get(self.unit, self.unit), meaning) if meaning else None


def _sum(column: str, *kinds: str, item: Callable[[str], bool] = lambda _: True) -> Source:
    """A column of the events of these kinds, or of all that spend something, whose ``item`` is such a one."""

    def amount(event: Any) -> float:
        counts = event.kind in kinds if kinds else event.kind != "work"
        return float(getattr(event, column)) if counts and item(event.item) else 0.0

    return amount


def _count(kind: str) -> Source:
    return lambda event: float(event.kind == kind)


def _ratio(over: str, under: str) -> Callable[[Any], float | None]:
    return lambda totals: totals[over] / totals[under] if totals[under] else None


def _unfinished(totals: Any) -> Any:
    known = [fate for fate in LOST if fate not in ("evaluated", "unfinished")]
    return totals["bytes_wasted"] - sum(totals[f"bytes_{fate}"] for fate in known)


_Q = Quantity
_timeouts = partial(_Q, whole=True, group="timeouts")
_blocks = partial(_Q, group="blocks")
_fronts = partial(_blocks, whole=True)


def _peers(name: str, meaning: str, head: str) -> Quantity:
    return _Q(f"peers_{name}", "number", meaning, head, path=f"peers.{name}", total="last", group="peers")


_ENDS = ("transfer_end", "transfer_drop")

QUANTITIES: dict[str, Quantity] = {
    each.name: each
    for each in (
        _Q("seconds", "seconds", "virtual time at the round's end", "time", "time", "time", total="last"),
        _Q("rounds", "count", head="rounds", axis="rounds", total="last"),
        _Q("rounds_without_update", "count", head="rounds without update",
           source=lambda event: float(event.kind == "aggregation" and not event.value)),
        _Q("refused", "count", "clients whose memory did not hold the job", "refused jobs", source=_count("refused")),
        _Q("participants", "count", "clients that took part; not those that left before it began"),
        _Q("aggregated", "count", "clients whose update went into the model", source=_sum("value", "aggregation")),
        _timeouts("transfers_breaks", "count", "attempts to transfer something that broke", "broken attempts",
                  path="transfers.breaks", source=_count("transfer_break")),
        _timeouts("transfers_retries", "count", "attempts that followed another", "retries", path="transfers.retries"),
        _timeouts("transfers_failed", "count", "transfers that failed", "failed transfers", path="transfers.failed"),
        _Q("bytes", "bytes", limit="traffic", axis="traffic, down and up", path="",
           of=lambda totals: totals["bytes_down"] + totals["bytes_up"]),
        _Q("bytes_down", "bytes", "delivered to clients during the round", "down", path="bytes.down",
           source=_sum("bytes", *_ENDS, "reception", item=lambda item: item not in ("up", "relay"))),
        _Q("bytes_up", "bytes", "delivered by clients during the round", "up", path="bytes.up",
           source=_sum("bytes", *_ENDS, item="up".__eq__)),
        _Q("bytes_useful", "bytes", "of both, of clients whose update was aggregated", path="bytes.useful", whole=True),
        _Q("bytes_wasted", "bytes", head="wasted", path="bytes.wasted", whole=True,
           of=lambda totals: totals["bytes"] - totals["bytes_useful"] - totals["bytes_evaluated"]),
        *(_Q(f"bytes_{fate}", "bytes", f"of both, lost: {fate.replace('_', ' ')}", path=f"bytes.by_fate.{fate}",
             whole=True, source=_sum("bytes", "lost", item=fate.__eq__))
          for fate in LOST if fate not in ("broken", "evaluated", "unfinished")),
        _Q("bytes_evaluated", "bytes", "of both, for evaluations on clients", "evaluation",
           path="bytes.by_fate.evaluated", group="bytes_evaluated",
           source=_sum("bytes", "lost", item="evaluated".__eq__)),
        _Q("bytes_broken", "bytes", "of both, lost: broken", path="bytes.by_fate.broken", whole=True,
           group="transfers_breaks", source=_sum("bytes", "transfer_break", item="relay".__ne__)),
        _Q("bytes_unfinished", "bytes", path="bytes.by_fate.unfinished", whole=True, of=_unfinished),
        _Q("bytes_backhaul", "bytes", "between the server and averaging cells, not in others", path="bytes.backhaul",
           whole=True, group="bytes_backhaul", source=_sum("bytes", *_ENDS, item="relay".__eq__)),
        _Q("client_bytes", "bytes", "so far, to and from the client with the most", limit="traffic of a client",
           total="max", each=" a client"),
        _Q("joules", "joules", "drawn by the devices during the round", "energy", "energy", "energy",
           source=_sum("joules")),
        _Q("flops", "flops", "FLOPs of the clients during the round", limit="computing", axis="computation",
           source=_sum("flops")),
        _Q("ratio_to_optimum", "number", "seconds relative to the least possible ones; null if unknown",
           "× shortest round", total="mean", group="ratio_to_optimum"),
        _Q("exposed_seconds", "seconds", "transfers of the critical path that lengthened the round",
           "exposed transfers", path="communication.exposed_seconds"),
        _Q("hidden_seconds", "seconds", "transfers of the critical path that did not", "hidden transfers",
           path="communication.hidden_seconds"),
        _Q("server_seconds", "seconds", "in which the server aggregated and evaluated", "server",
           group="server_seconds", source=_sum("seconds", "server")),
        _Q("evaluation_seconds", "seconds", "in which clients evaluated the round's model", "evaluation on clients",
           group="evaluation_seconds"),
        _blocks("blocks_actual", "bytes", "model blocks sent to the cohort, by their true size", "blocks, actual bytes",
                path="blocks.actual"),
        _blocks("blocks_uniform", "bytes", "model blocks sent to the cohort, at 1/M of the model each",
                "blocks at 1/M", path="blocks.uniform"),
        _fronts("front_blocks", "count", "blocks trained without a download for the job", path="blocks.front_blocks"),
        _fronts("front_block_rounds", "count", "sum of their ages in rounds", path="blocks.front_block_rounds"),
        _fronts("front_block_age", "rounds", head="age of stale blocks", path="blocks.front_age",
                of=_ratio("front_block_rounds", "front_blocks")),
        _blocks("start_distance", "number", "largest squared distance so far of a model that a client started from to "
                "the server's", "β², distance at the start", path="blocks.start_distance", total="max"),
        _fronts("foreseen_seconds", "seconds", "predicted makespan of the blocks", path="blocks.foreseen_seconds"),
        _fronts("least_seconds", "seconds", "least makespan of as many blocks", path="blocks.least_seconds"),
        _fronts("makespan_over_least", "number", path="blocks.makespan_over_least",
                of=_ratio("foreseen_seconds", "least_seconds")),
        _fronts("choice_rewards", "number", "mean rewards of the chosen blocks, without signs",
                path="blocks.choice_rewards"),
        _fronts("choice_bonuses", "number", "bonuses of the chosen blocks", path="blocks.choice_bonuses"),
        _fronts("reward_over_bonus", "number", head="reward / bonus", path="blocks.reward_over_bonus",
                of=_ratio("choice_rewards", "choice_bonuses")),
        _peers("worst", "the worst peer's metric", "worst peer"),
        _peers("best", "the best peer's metric", "best peer"),
        _peers("mean_model", "the metric of the mean of the peers' models", "mean of models"),
        _peers("consensus_distance", "root mean square distance of the peers' models from their mean",
               "consensus distance"),
        _Q("seconds_a_round", "seconds", head="time a round", of=_ratio("seconds", "rounds")),
        _Q("useful_share", "fraction", whole=True, of=_ratio("bytes_useful", "bytes")),
    )
}  # fmt: skip
"""All quantities and derived figures by name, in the order of tables; :func:`declare` adds those of users."""


def _of_detail(name: str) -> Source:
    return lambda event: float(event.facts[name]) if f'"{name}"' in event.detail else 0.0


PRICED = {
    each.name: each._replace(axis=each.name, source=_of_detail(each.name))
    for each in (
        _Q("grams", "g", "CO2 of the devices' energy, by prices.carbon", "CO2", "CO2"),
        _Q("euros", "€", "cost of the devices' energy and traffic", "money", "money"),
        _Q("server_grams", "g", "CO2 of the server's energy, by prices.server", "server's CO2"),
        _Q("server_euros", "€", "cost of the server's energy and traffic, by prices.server", "server's money"),
    )
}
"""Of runs with ``prices`` only; the details of each row have what it emits and costs."""

PRIVATE = {
    "epsilon": _Q("epsilon", "number", "privacy loss ε so far, of the client or example with the most", "ε",
                  limit="privacy", axis="ε", total="last"),
}  # fmt: skip
"""Of runs with ``privacy.dp`` and an accountant only."""

COSTS = {"seconds": "time", "bytes": "traffic", "joules": "energy"}
"""The quantities that tables and the page's budgets show first, with their headings."""

_BUILT_IN = frozenset(QUANTITIES)


def declare(quantity: Quantity) -> Quantity:
    """Add a user's quantity to :data:`QUANTITIES`, in place of an earlier one of the same name."""
    name = quantity.name
    if quantity.built_in:
        raise UserError(f"'{name}' is a figure of edgefl; expected another name")
    quantity = quantity._replace(path=name, axis=name, head=quantity.head or name, meaning=quantity.meaning or name)
    if quantity.source is not None or name not in QUANTITIES:  # else it was read from a run directory
        QUANTITIES[name] = quantity
    return quantity


class Totals(dict[str, Any]):
    """Amounts by the names of quantities, as numbers or, by round, as arrays; what was never charged is 0.

    >>> totals = Totals(bytes_down=3.0)
    >>> totals.charge("bytes_up", 2.0)
    >>> totals["bytes"], totals["joules"]
    (5.0, 0.0)
    """

    def __missing__(self, name: str) -> Any:
        quantity = QUANTITIES.get(name)
        return 0.0 if quantity is None or quantity.of is None else quantity.of(self)

    def charge(self, name: str, amount: float) -> None:
        self[name] = self[name] + amount

    def raise_to(self, name: str, amount: float) -> None:
        """Charge a quantity whose total is the largest amount."""
        self[name] = max(self[name], amount)

    def since(self, earlier: Mapping[str, float], quantities: Iterable[Quantity]) -> dict[str, float]:
        """The amounts of a round that began with ``earlier`` totals, as in its row."""
        found = {q: self[q.name] - earlier[q.name] if q.total == "sum" else self[q.name] for q in quantities}
        return {each.name: int(amount) if each.whole_number else amount for each, amount in found.items()}


def spent_by_round(rounds: Mapping[str, Floats]) -> Totals:
    """The totals up to the end of each round, from the columns of ``rounds.parquet``."""
    found = Totals(rounds=rounds["round"], rounds_without_update=np.cumsum(rounds["aggregated"] == 0))
    for name in rounds.keys() & QUANTITIES.keys():
        found[name] = np.cumsum(rounds[name]) if QUANTITIES[name].total == "sum" else rounds[name]
    return found


def totals_of(rounds: Mapping[str, Floats]) -> Totals:
    """The totals at the end of the last of these rounds."""
    found = Totals({name: values[-1] if len(values) else 0.0 for name, values in spent_by_round(rounds).items()})
    for name in [name for name in found if QUANTITIES[name].total == "mean"]:
        known = rounds[name][np.isfinite(rounds[name])]
        found[name] = known.mean() if len(known) else None
    return found


def figures(totals: Totals, groups: Container[str] = ()) -> dict[str, Any]:
    """The totals as data of an entry of ``summary.json``, with the figures of all runs and of these groups."""
    shown = [each for each in QUANTITIES.values() if each.place and each.is_of(totals)]
    shown = [each for each in shown if not each.group or each.group in groups or totals[each.group]]
    return nested({each.place: each.written(totals) for each in shown})


def at(result: SeedResult | Mapping[str, Any], place: str) -> Any:
    """What an entry of ``summary.json`` has at a place; ``None`` if it has nothing there."""
    found: Any = result
    for part in place.split("."):
        found = found.get(part) if isinstance(found, Mapping) else getattr(found, part, None)
    return found


def flat(result: SeedResult | Mapping[str, Any]) -> Totals:
    """The figures of an entry of ``summary.json`` by name, without those that it does not have."""
    found = {each.name: at(result, each.place) for each in QUANTITIES.values() if each.place}
    return Totals({name: value for name, value in found.items() if value is not None})


def figure(result: SeedResult, quantity: Quantity) -> Any:
    """A figure of one seed; ``None`` if it has none."""
    stored = at(result, quantity.place) if quantity.place else None
    return flat(result)[quantity.name] if stored is None and quantity.of else stored


def moment(result: SeedResult, rounds: Mapping[str, Floats]) -> SeedResult:
    """A seed's result with its figures at the end of the last of its ``rounds`` within all its budgets.

    Figures that are ``whole``, those of clients and of the ensemble stay those of the whole run.

    Raises:
        UserError: the run went on beyond a budget of what its rows, by an earlier build, do not have.
    """
    spent, inside = spent_by_round(rounds), np.ones(len(rounds["round"]), np.bool_)
    for kind, limit in [(each.kind, each.limit) for each in result.budgets]:
        known = kind in spent or QUANTITIES[kind].of
        if not known and result.stop.reason != kind and (figure(result, QUANTITIES[kind]) or 0) > limit:
            raise UserError(f"an earlier edgefl wrote this run without {kind} by round; simulate it again")
        inside &= spent[kind] <= limit + slack(limit)
    within = int(np.logical_and.accumulate(inside).sum())  # with negative prices a sum may fall again
    rounds = {name: values[:within] for name, values in rounds.items()}
    totals, data, metric = totals_of(rounds), result.written(), result.metric.metric
    for each in [each for each in QUANTITIES.values() if each.place and not each.whole]:
        has = each.of or totals.get(each.name) is not None
        if has and (not each.group or at(data, each.place) is not None):
            put(data, each.place, each.written(totals))
    if totals["rounds"] < result.rounds or result.stop.reason == "trained":  # else the last model, evaluated at the end
        known, averages = (column[np.isfinite(column)].tolist() for column in (rounds["metric"], rounds["metric_ema"]))
        values = (known[-1], metric.best(*known), averages[-1]) if known else (None, None, None)
        data["metric"] |= dict(zip(("final", "best", "ema"), values, strict=True))
    data["accuracy"] = {name: data["metric"].get(name) if metric.is_accuracy else None for name in data["accuracy"]}
    for target in data["targets"]:
        if target.get("seconds") is None or not at_most(target["seconds"], totals["seconds"]):
            target |= {"reached": False, "seconds": None}
    return SeedResult.model_validate(data)


def put(data: dict[str, Any], place: str, value: Any) -> None:
    """Set a value at a place of nested mappings."""
    *above, name = place.split(".")
    for part in above:
        data = data.setdefault(part, {})
    data[name] = value


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by place as an object in an object.

    >>> nested({"seconds": 1.0, "bytes.up": 2, "bytes.down": 3})
    {'seconds': 1.0, 'bytes': {'up': 2, 'down': 3}}
    """
    found: dict[str, Any] = {}
    for place, value in values.items():
        put(found, place, value)
    return found
