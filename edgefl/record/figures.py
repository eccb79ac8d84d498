"""The figures of a run: each cost, count and share is declared here, once, and computed by :func:`moment`.

A run charges amounts to quantities. A quantity is a column of ``rounds.parquet``, a key of ``summary.json`` and of
JSON output, a row of ``--details``, and, if its declaration says so, an x-axis and a budget. A *derived* figure is a
function of other totals, and has no column.
"""

import math
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from edgefl.errors import UserError
from edgefl.record.kinds import F64, I32, I64, LOST, column
from edgefl.record.metric import Metric
from edgefl.record.summary import SeedResult

Floats = NDArray[np.float64]

_SYMBOLS = {"seconds": "s", "bytes": "B", "flops": "FLOP", "joules": "J", **dict.fromkeys(("count", "number"), "")}


class Quantity(NamedTuple):
    """One figure of a run.

    ``unit`` is ``seconds``, ``bytes``, ``flops``, ``joules``, ``count``, ``rounds``, ``number``, ``fraction``, or the
    symbol of another unit, such as ``g``. The ``total`` up to a round is the ``sum`` of the rounds' amounts, the
    largest amount charged (``max``), the ``last`` row's, or the ``mean`` of the rows that have a value.
    """

    name: str  # of its column, and of a budget
    unit: str
    meaning: str  # of its column
    head: str = ""  # its heading in --details; not shown if empty
    limit: str = ""  # its name where a budget of it ends a run; no budget if empty
    axis: str = ""  # its label as an x-axis; the part before a comma is its name for --x
    total: Literal["sum", "max", "last", "mean"] = "sum"
    path: str | None = None  # its place in a seed's entry of summary.json, with dots; its name if None
    whole: bool = False  # tables show that of the whole run, not that of the last round within all limits
    optional: bool = False  # no key if it is zero or unknown
    group: str = ""  # the runs that have it, if not all: those with blocks, timeouts or breaks
    each: str = ""  # follows its amount in the words of a budget
    of: Callable[[Any], Any] | None = None  # of a derived figure: its value from the totals
    source: Callable[[Any], float] | None = None  # what an event of the log adds to it

    @property
    def place(self) -> str:
        """Its place in ``summary.json``; empty if it has none."""
        return self.name if self.path is None else self.path

    @property
    def built_in(self) -> bool:
        return self.name in _BUILT_IN

    def is_of(self, amounts: Container[str]) -> bool:
        """True if a run with these amounts has it; a user's quantity is only one of some runs."""
        return self.built_in or self.name in amounts

    @property
    def whole_number(self) -> bool:
        return self.unit in ("bytes", "count")

    def written(self, totals: Any) -> Any:
        """Its value for JSON; ``None`` if there are no totals, or it is unknown."""
        value = None if totals is None else totals[self.name]
        if value is None or not math.isfinite(value):
            return None
        return int(value) if self.whole_number else float(value)

    @property
    def column(self) -> pa.Field | None:
        """Its column in ``rounds.parquet``; ``None`` if it has none."""
        if not self.meaning or self.of is not None:
            return None
        kind = {"count": I32, "bytes": I64}.get(self.unit, F64)
        return column(self.name, kind, _SYMBOLS.get(self.unit, self.unit), self.meaning)


_Q = Quantity


def _delivered(item: str) -> Callable[[Any], float]:
    """The bytes of transfers in one direction, completed or aborted."""

    def bytes_of(event: Any) -> float:
        way = event.item if event.item in ("up", "relay") else "down"
        return float(event.bytes) if event.kind in ("transfer_end", "transfer_drop") and way == item else 0.0

    return bytes_of


def _lost(fate: str) -> Quantity:
    """The bytes of one fate; those of unfinished jobs are all that have no other one."""

    def lost(event: Any) -> float:
        return float(event.bytes) if event.kind == "lost" and event.item == fate else 0.0

    def broken(event: Any) -> float:
        return float(event.bytes) if event.kind == "transfer_break" and event.item != "relay" else 0.0

    found = _Q(f"bytes_{fate}", "bytes", f"of both, lost: {fate.replace('_', ' ')}", path=f"bytes.by_fate.{fate}")
    special: dict[str, Any] = {"unfinished": {"of": _unfinished}, "broken": {"source": broken, "group": "breaks"}}
    return found._replace(whole=True, **special.get(fate, {"source": lost}))


def _count(kind: str) -> Callable[[Any], float]:
    return lambda event: float(event.kind == kind)


def _ratio(over: str, under: str) -> Callable[[Any], float | None]:
    return lambda totals: totals[over] / totals[under] if totals[under] else None


def _wasted(totals: Any) -> Any:
    return totals["bytes"] - totals["bytes_useful"]


def _unfinished(totals: Any) -> Any:
    return _wasted(totals) - sum(totals[f"bytes_{fate}"] for fate in LOST if fate != "unfinished")


QUANTITIES: dict[str, Quantity] = {
    each.name: each
    for each in (
        _Q("seconds", "seconds", "virtual time at the round's end", "time", "time", "time", "last"),
        _Q("rounds", "count", "", "rounds", axis="rounds", total="last"),
        _Q("rounds_without_update", "count", "", "rounds without update",
           source=lambda event: float(event.kind == "aggregation" and not event.value)),
        _Q("refused", "count", "clients whose memory did not hold the job", "refused jobs", source=_count("refused")),
        _Q("participants", "count", "clients that took part; not those that left before it began"),
        _Q("aggregated", "count", "clients whose update went into the model",
           source=lambda event: event.value if event.kind == "aggregation" else 0.0),
        _Q("transfers_breaks", "count", "attempts to transfer something that broke", "broken attempts",
           path="transfers.breaks", whole=True, group="timeouts", source=_count("transfer_break")),
        _Q("transfers_retries", "count", "attempts that followed another", "retries",
           path="transfers.retries", whole=True, group="timeouts"),
        _Q("transfers_failed", "count", "transfers that failed", "failed transfers",
           path="transfers.failed", whole=True, group="timeouts"),
        _Q("bytes", "bytes", "in both directions", limit="traffic", axis="traffic, down and up", path="",
           of=lambda totals: totals["bytes_down"] + totals["bytes_up"]),
        _Q("bytes_down", "bytes", "delivered to clients, also by aborted transfers", "down", path="bytes.down",
           source=_delivered("down")),
        _Q("bytes_up", "bytes", "delivered to the server, also by aborted transfers", "up", path="bytes.up",
           source=_delivered("up")),
        _Q("bytes_useful", "bytes", "of both, of clients whose update was aggregated", path="bytes.useful", whole=True),
        _Q("bytes_wasted", "bytes", "", "wasted", path="bytes.wasted", whole=True, of=_wasted),
        *map(_lost, LOST),
        _Q("bytes_backhaul", "bytes", "between the server and averaging cells; not in the other counts",
           path="bytes.backhaul", whole=True, optional=True, source=_delivered("relay")),
        _Q("client_bytes", "bytes", "so far, to and from the client with the most", limit="traffic of a client",
           total="max", each=" a client"),
        _Q("joules", "joules", "drawn by the devices: idle while they take part, computing, radio", "energy", "energy",
           "energy", source=lambda event: 0.0 if event.kind == "work" else event.joules),
        _Q("flops", "flops", "training FLOPs; those of an aborted computation in proportion", limit="computing",
           axis="computation", source=lambda event: 0.0 if event.kind == "work" else event.flops),
        _Q("ratio_to_optimum", "number", "seconds relative to the least possible ones; null if unknown",
           "× shortest round", total="mean", optional=True),
        _Q("exposed_seconds", "seconds", "transfers of the critical path that lengthened the round",
           "exposed transfers", path="communication.exposed_seconds"),
        _Q("hidden_seconds", "seconds", "transfers of the critical path that did not", "hidden transfers",
           path="communication.hidden_seconds"),
        _Q("blocks_actual", "bytes", "model blocks sent to the cohort, by their true size", "blocks, actual bytes",
           path="blocks.actual", group="blocks"),
        _Q("blocks_uniform", "bytes", "model blocks sent to the cohort, at 1/M of the model each", "blocks at 1/M",
           path="blocks.uniform", group="blocks"),
        _Q("front_blocks", "count", "blocks that clients trained without a download for the job",
           path="blocks.front_blocks", whole=True, group="blocks"),
        _Q("front_block_rounds", "count", "the sum of their ages in rounds", path="blocks.front_block_rounds",
           whole=True, group="blocks"),
        _Q("front_block_age", "rounds", "", "age of stale blocks", path="blocks.front_age", whole=True, group="blocks",
           of=_ratio("front_block_rounds", "front_blocks")),
        _Q("foreseen_seconds", "seconds", "predicted makespan of the chosen blocks", path="blocks.foreseen_seconds",
           whole=True, group="blocks"),
        _Q("least_seconds", "seconds", "predicted makespan of the best choice of as many blocks",
           path="blocks.least_seconds", whole=True, group="blocks"),
        _Q("makespan_over_least", "number", "", path="blocks.makespan_over_least", whole=True, group="blocks",
           of=_ratio("foreseen_seconds", "least_seconds")),
        _Q("seconds_a_round", "seconds", "", "time a round", of=_ratio("seconds", "rounds")),
        _Q("useful_share", "fraction", "", whole=True, of=_ratio("bytes_useful", "bytes")),
    )
}  # fmt: skip
"""All quantities and derived figures by name, in the order of tables; :func:`declare` adds those of users."""

_BUILT_IN = frozenset(QUANTITIES)


def declare(quantity: Quantity) -> Quantity:
    """Add a user's quantity to :data:`QUANTITIES`, in place of an earlier one of the same name."""
    if quantity.built_in:
        raise UserError(f"'{quantity.name}' is a figure of edgefl; expected another name")
    name = quantity.name
    quantity = quantity._replace(path=name, axis=name, head=quantity.head or name, meaning=quantity.meaning or name)
    if quantity.source is not None or name not in QUANTITIES:  # else it was read from a run directory
        QUANTITIES[name] = quantity
    return quantity


def declaration(quantity: Quantity) -> dict[str, Any]:
    """A user's quantity for ``summary.json``: ``declare(Quantity(**declaration))`` is the same without its source."""
    return {name: getattr(quantity, name) for name in ("name", "unit", "meaning", "head", "limit", "total")}


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
        found = {
            each: self[each.name] - earlier[each.name] if each.total == "sum" else self[each.name]
            for each in quantities
        }
        return {each.name: int(amount) if each.whole_number else amount for each, amount in found.items()}


def spent_by_round(rounds: Mapping[str, Floats]) -> Totals:
    """The totals up to the end of each round, from the columns of ``rounds.parquet``."""
    found = Totals(rounds=rounds["round"], rounds_without_update=np.cumsum(rounds["aggregated"] == 0))
    for name in rounds.keys() & QUANTITIES.keys():
        found[name] = np.cumsum(rounds[name]) if QUANTITIES[name].total == "sum" else rounds[name]
    return found


def within(spent: Totals, limits: Iterable[tuple[str, float]]) -> int:
    """The number of rounds that ended within all limits; a limit on what an older run did not count is none."""
    found = np.ones(len(spent["rounds"]), np.bool_)
    for name, limit in limits:
        found &= spent[name] <= limit * (1 + 1e-9)
    return int(found.sum())


def figures(totals: Totals, groups: Iterable[str] = ()) -> dict[str, Any]:
    """The totals as data of an entry of ``summary.json``; ``groups`` are those that the run has."""
    shown = [each for each in QUANTITIES.values() if each.place and each.group in ("", *groups)]
    values = {each: each.written(totals) for each in shown if each.is_of(totals)}
    return nested({each.place: value for each, value in values.items() if value or not each.optional})


def figure(result: SeedResult | Mapping[str, Any], name: str) -> Any:
    """A figure of one seed, from its entry in ``summary.json``; ``None`` if it has none."""
    quantity = QUANTITIES[name]
    if not quantity.place:
        return quantity.of and quantity.of(_Figures(result))
    found: Any = result
    for part in quantity.place.split("."):
        found = found.get(part) if isinstance(found, Mapping) else getattr(found, part, None)
    return found


class _Figures(dict[str, Any]):
    """The figures of one seed by name."""

    def __init__(self, result: SeedResult | Mapping[str, Any]) -> None:
        super().__init__()
        self._result = result

    def __missing__(self, name: str) -> Any:
        return figure(self._result, name)


def flat(result: SeedResult | Mapping[str, Any]) -> dict[str, Any]:
    """All figures of one seed by name."""
    found = {name: figure(result, name) for name, each in QUANTITIES.items() if each.place}
    return {name: value for name, value in found.items() if value is not None}


def metric_values(rounds: Mapping[str, Floats], metric: Metric) -> dict[str, float | None]:
    """The last and the best metric of these rounds, and the last moving average; ``None`` without an evaluation."""
    known, averages = (values[np.isfinite(values)].tolist() for values in (rounds["metric"], rounds["metric_ema"]))
    if not known:
        return dict.fromkeys(("final", "best", "ema"))
    return {"final": known[-1], "best": metric.best(*known), "ema": averages[-1]}


def totals_of(rounds: Mapping[str, Floats]) -> Totals:
    """The totals at the end of the last of these rounds."""
    spent = spent_by_round(rounds)
    found = Totals({name: values[-1] if len(values) else 0.0 for name, values in spent.items()})
    for name in [name for name in spent if name in _BUILT_IN and QUANTITIES[name].total == "mean"]:
        known = spent[name][np.isfinite(spent[name])]
        found[name] = known.mean() if len(known) else None
    return found


def moment(result: SeedResult, rounds: Mapping[str, Floats]) -> SeedResult:
    """A seed's result with its figures at the end of the last of its ``rounds`` within all its budgets.

    Figures that are ``whole``, those of clients and of the ensemble stay those of the whole run.

    Raises:
        UserError: the run went on beyond a budget of what its rows, by an earlier build, do not have.
    """
    spent = spent_by_round(rounds)
    for budget in result.budgets:
        beyond = result.stop.reason != budget.kind and (figure(result, budget.kind) or 0) > budget.limit
        if beyond and budget.kind not in spent and QUANTITIES[budget.kind].of is None:
            raise UserError(f"an earlier edgefl wrote this run without {budget.kind} by round; simulate it again")
    count = within(spent, [(each.kind, each.limit) for each in result.budgets])
    totals = totals_of({name: values[:count] for name, values in rounds.items()})
    data, metric = result.written(), result.metric.metric
    for each in [each for each in QUANTITIES.values() if not each.whole and each.place]:
        known = each.of is not None or totals.get(each.name) is not None
        if known and (not each.group or each.place.partition(".")[0] in data):
            put(data, each.place, each.written(totals))
    if count < result.rounds or result.stop.reason == "trained":  # else the last model, evaluated at the run's end
        data["metric"] |= metric_values({name: values[:count] for name, values in rounds.items()}, metric)
    values = {name: data["metric"].get(name) for name in ("final", "best", "ema")}
    data["accuracy"] = values if metric.is_accuracy else dict.fromkeys(values)
    for target in data["targets"]:
        if target.get("seconds") is None or target["seconds"] > totals["seconds"] * (1 + 1e-9):
            target |= {"reached": False, "seconds": None}
    return SeedResult.model_validate(data)


def put(data: dict[str, Any], path: str, value: Any) -> None:
    """Set a value at a path, with dots, of nested mappings."""
    *above, name = path.split(".")
    for part in above:
        data = data.setdefault(part, {})
    data[name] = value


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by path as an object in an object.

    >>> nested({"seconds": 1.0, "bytes.up": 2, "bytes.down": 3})
    {'seconds': 1.0, 'bytes': {'up': 2, 'down': 3}}
    """
    found: dict[str, Any] = {}
    for path, value in values.items():
        put(found, path, value)
    return found
