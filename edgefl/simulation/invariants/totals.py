"""Every total in ``summary.json`` and every row of ``rounds.parquet`` is a sum over the log."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from edgefl.record.events import Event
from edgefl.record.kinds import BUDGETS, BudgetKind
from edgefl.simulation.invariants.record import TOLERANCE, Record, close

_VALUES = ("final", "best", "ema")
_METRICS = ("metric", "metric_ema", "metric_ensemble")
_SUM = 1e-7  # the order of addition differs between the run and the check


def summary(record: Record) -> Iterator[str]:
    """FLOPs, joules, seconds, rounds and accuracies of the summary match the log; its counts are sums over rounds."""
    reported = record.summary
    ends = list(record.of("round_end"))
    expected: dict[str, float] = {
        "flops": sum(event.flops for event in record.events if event.kind != "work"),
        "joules": sum(event.joules for event in record.events if event.kind != "work"),
        "seconds": record.events[-1].time,
        "rounds": len(ends),
    }
    for name, value in expected.items():
        if not close(value, getattr(reported, name), tolerance=_SUM):
            yield f"{name}: summary.json has {getattr(reported, name)}, the log gives {value}"
    counts = {
        "client_bytes": _most_by_round(record)[-1],
        "rounds_without_update": record.rounds["aggregated"].count(0),
        "refused": sum(record.rounds["refused"]),
    }
    for name, count in counts.items():
        if getattr(reported, name) != count:
            yield f"{name}: summary.json has {getattr(reported, name)}, the run's tables give {count}"
    for name in ("exposed_seconds", "hidden_seconds"):
        value = sum(event.facts.get(name, 0.0) for event in ends)
        given = getattr(reported.communication, name)
        if not close(value, given, tolerance=_SUM):
            yield f"communication.{name}: summary.json has {given}, the log sums to {value}"
    evaluations = [event.value for event in record.of("evaluation")]
    if evaluations:
        for name, value in (("final", evaluations[-1]), ("best", reported.metric.metric.best(*evaluations))):
            if value != getattr(reported.metric, name):
                yield f"metric.{name}: summary.json has {getattr(reported.metric, name)}, the log {value}"


def optimum(record: Record) -> Iterator[str]:
    """No round is shorter than the least possible one, and the summary has the mean of the rounds that have a ratio."""
    known = [ratio for ratio in record.rounds["ratio_to_optimum"] if ratio is not None]
    if known and not min(known) >= 1 - TOLERANCE:
        yield f"ratio_to_optimum: rounds.parquet has {min(known):g}; no round is shorter than the least possible one"
    if known and record.emulation is not None:
        yield "ratio_to_optimum: rounds.parquet has values, but the seconds of an emulated run were measured"
    expected = math.fsum(known) / len(known) if known else None
    given = record.summary.ratio_to_optimum
    if (given is None) != (expected is None) or (given is not None and not close(given, expected or 0.0)):
        yield f"ratio_to_optimum: summary.json has {given}, the rounds give {expected}"


def accuracies(record: Record) -> Iterator[str]:
    """What the summary gives as accuracy is the metric, if this is the accuracy, and nothing else."""
    reported = record.summary
    is_accuracy = reported.metric.metric.is_accuracy
    pairs = [
        *((f"accuracy.{name}", getattr(reported.accuracy, name), getattr(reported.metric, name)) for name in _VALUES),
        *((f"budget on {each.kind}", each.accuracy, each.metric) for each in reported.budgets),
        *((f"target {each.value:g}", each.accuracy, each.value) for each in reported.targets),
    ]
    for what, accuracy, value in pairs:
        if accuracy != (value if is_accuracy else None):
            yield f"{what}: summary.json has the accuracy {accuracy}, and {value} as {reported.metric.name}"


def budgets(record: Record) -> Iterator[str]:
    """The metric at a budget is that of the last evaluated round that ended within it."""
    rounds, most = record.rounds, _most_by_round(record)
    spent: dict[BudgetKind, float] = dict.fromkeys(BUDGETS, 0.0)
    afforded: dict[int, float | None] = {}
    for index, value in enumerate(rounds["metric"]):
        spent["seconds"] = rounds["seconds"][index]
        spent["bytes"] += rounds["bytes_down"][index] + rounds["bytes_up"][index]
        spent["client_bytes"] = most[index] if index < len(most) else math.inf
        spent["flops"] += rounds["flops"][index]
        spent["joules"] += rounds["joules"][index]
        for number, budget in enumerate(record.summary.budgets):
            if spent[budget.kind] <= budget.limit and value is not None:
                afforded[number] = value
    for number, budget in enumerate(record.summary.budgets):
        if afforded.get(number) != budget.metric:
            reported, found = budget.metric, afforded.get(number)
            yield f"budget on {budget.kind}: summary.json has {reported}, the rounds within it end at {found}"


def _most_by_round(record: Record) -> list[int]:
    """Bytes to and from the client with the most traffic, at the end of each round and at the end of the run."""
    moved: Counter[int] = Counter()
    most = [0]
    for event in record.events:
        if event.kind in ("transfer_end", "transfer_drop") and event.client >= 0:
            moved[event.client] += int(event.bytes)
            most[-1] = max(most[-1], moved[event.client])
        elif event.kind == "round_end":
            most.append(most[-1])
    return most


def critical_path(record: Record) -> Iterator[str]:
    """A round's exposed and hidden seconds are those of the client that closed it."""
    starts = {event.flow: event for event in record.of("transfer_start")}
    spans: defaultdict[tuple[int, int], list[_Span]] = defaultdict(list)
    relays: defaultdict[tuple[int, str, bool], list[_Span]] = defaultdict(list)
    for event in record.events:
        if event.kind == "lost" and event.item == "prefetched_in_vain":
            spans.pop(event.job, None)
        # A broadcast belongs to a later job, but is on nobody's critical path.
        begin = starts.get(event.flow) if event.kind == "transfer_end" and event.item != "broadcast" else None
        if begin is None:
            continue
        if record.timeouts is not None:  # the waits for other attempts belong to it
            begin = starts.get(begin.facts.get("first", begin.flow), begin)
        span = _Span(begin.time, event.time, event.item)
        if event.item == "relay":
            down = event.source == "server"
            relays[event.round, event.target if down else event.source, down].append(span)
        else:
            spans[event.job].append(span)
    cells = {event.client: event.source for event in starts.values() if event.item in ("down", "prefetch")}
    dispatched = {event.job: event.time for event in record.of("dispatch")}
    begun = {event.round: event.time for event in record.of("round_start")}
    for event in record.of("round_end"):
        logged = event.facts
        exposed = hidden = 0.0
        if event.client >= 0:
            start = begun.get(event.round, 0.0)
            cell = cells.get(event.client, "")
            fetched, returned = relays[event.round, cell, True], relays[event.round, cell, False]
            exposed = sum(span.end - span.begin for span in returned)
            have = max((span.end for span in fetched), default=start)
            exposed += max(0.0, have - start)
            hidden = sum(max(0.0, min(span.end, start) - span.begin) for span in fetched)
            # Its participation began at its dispatch, or when its first transfer without prefetching began.
            own = [span for span in spans[event.job] if span.item != "prefetch"]
            first = min((span.begin for span in own if span.item == "down"), default=max(start, have))
            since = dispatched.get(event.job, first)
            prefetched = [span for span in spans[event.job] if span.item == "prefetch"]
            hidden += sum(max(0.0, min(span.end, since) - span.begin) for span in prefetched)
            left = [_Span(since, span.end, span.item) for span in prefetched if span.end > since]
            for span in _joined([*own, *left]):
                exposed += max(0.0, span.end - max(span.begin, start))
                hidden += max(0.0, min(span.end, start) - span.begin)
        for name, value in (("exposed_seconds", exposed), ("hidden_seconds", hidden)):
            if not close(value, logged.get(name, 0.0), tolerance=_SUM):
                yield f"round {event.round}: {name} is {logged.get(name)}, the critical client's transfers give {value}"


class _Span(NamedTuple):
    """A transfer, from its start to its end."""

    begin: float
    end: float
    item: str


def _joined(spans: list[_Span]) -> list[_Span]:
    """Return spans without overlaps: the parts of a download are merged."""
    joined: list[_Span] = []
    for span in sorted(spans):
        if joined and span.begin <= joined[-1].end and span.item != "up":
            joined[-1] = joined[-1]._replace(end=max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined


def rows(record: Record) -> Iterator[str]:
    """Each row of ``rounds.parquet`` sums the events of its round."""
    sums: list[dict[str, Any]] = []
    current: dict[str, Any] = _nothing()
    for event in record.events:
        _add(current, event)
        if event.kind == "round_end":
            sums.append({**current, "round": event.round, "seconds": event.time})
            current = _nothing()
    table = record.rounds
    if len(table["round"]) != len(sums):
        yield f"rounds.parquet has {len(table['round'])} rows, the log {len(sums)} rounds"
        return
    for index, expected in enumerate(sums):
        if record.summary.metric.metric.is_accuracy:
            expected |= {name.replace("metric", "accuracy"): expected[name] for name in _METRICS}
        for name, value in expected.items():
            found = table[name][index]
            if (found is None) != (value is None) or (value is not None and not close(found, value, tolerance=_SUM)):
                yield f"rounds.parquet, row {index + 1}: {name} is {found}, the log gives {value}"


def _nothing() -> dict[str, Any]:
    return {
        "bytes_down": 0, "bytes_up": 0, "flops": 0.0, "joules": 0.0, "aggregated": 0, "refused": 0, "metric": None,
        "loss": None, "metric_ema": None, "metric_ensemble": None,
    }  # fmt: skip


def _add(row: dict[str, Any], event: Event) -> None:
    if event.kind in ("transfer_end", "transfer_drop") and event.item != "relay":
        row["bytes_up" if event.item == "up" else "bytes_down"] += event.bytes
    if event.kind != "work":
        row["flops"] += event.flops
        row["joules"] += event.joules
    if event.kind == "refused":
        row["refused"] += 1
    if event.kind == "aggregation":
        row["aggregated"] = int(event.value)
    if event.kind == "evaluation":
        found = event.facts
        row.update(metric=event.value, loss=_finite(found.get("loss")), metric_ema=_finite(found.get("ema")))
        row.update(metric_ensemble=_finite(found.get("ensemble")))


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


LAWS = (summary, optimum, accuracies, budgets, critical_path, rows)
