"""Every byte has one fate, and the summary counts it under that fate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from edgefl.record.kinds import CONTINUED, LOST
from edgefl.simulation.invariants.record import Record, at, close


def fates(record: Record) -> Iterator[str]:
    """A job is aggregated, or lost with the bytes that it moved, or unfinished when the run ends.

    Bytes that were prefetched but not used, bytes before a restart of the job, and bytes of attempts to transfer them
    that broke, are lost separately.
    """
    moved: defaultdict[tuple[int, int], int] = defaultdict(int)
    counts: defaultdict[str, int] = defaultdict(int)
    over: dict[tuple[int, int], str] = {}
    for event in record.events:
        if event.kind in ("transfer_end", "transfer_drop") and event.item != "relay":
            moved[event.job] += int(event.bytes)
            counts["all"] += int(event.bytes)
        elif event.kind == "transfer_break" and event.item != "relay":
            moved[event.job] -= int(event.bytes)
            counts["broken"] += int(event.bytes)
        elif event.kind == "lost":
            bytes = moved.pop(event.job, 0)
            counts[event.item] += bytes
            if event.job in over:
                yield f"{at(event)}: job {event.dispatch} of the client was already {over[event.job]}"
            if bytes != event.bytes:
                yield f"{at(event)}: moved {bytes} bytes for job {event.dispatch}, not {event.bytes}"
            if event.item not in CONTINUED:
                over[event.job] = event.item
        elif event.kind == "aggregation":
            found = event.facts
            for job in zip(found.get("clients", ()), found.get("dispatches", ()), strict=False):
                counts["useful"] += moved.pop(job, 0)
                if job in over:
                    yield f"{at(event)}: job {job[1]} of client {job[0]} was already {over[job]}"
                over[job] = "aggregated"
    yield from _lost_bytes(record, counts)


def _lost_bytes(record: Record, counts: dict[str, int]) -> Iterator[str]:
    """The summary counts the lost bytes by fate."""
    counts["wasted"] = counts["all"] - counts["useful"]
    counts["unfinished"] = counts["wasted"] - sum(counts[fate] for fate in LOST if fate != "unfinished")
    reported = record.summary.bytes
    for name in ("useful", "wasted"):
        if counts[name] != getattr(reported, name):
            yield f"bytes.{name}: summary.json has {getattr(reported, name)}, the log sums to {counts[name]}"
    for fate in LOST:
        given = reported.by_fate.get(fate, 0 if fate == "broken" else None)
        if counts[fate] != given:
            yield f"bytes.by_fate.{fate}: summary.json has {given}, the log sums to {counts[fate]}"


def directions(record: Record) -> Iterator[str]:
    """Bytes down, up and over the backhaul are those of the log's transfers."""
    counts: defaultdict[str, int] = defaultdict(int)
    for event in record.of("transfer_end", "transfer_drop"):
        name = {"up": "up", "relay": "backhaul"}.get(event.item, "down")
        counts[name] += int(event.bytes)
    reported = record.summary.bytes
    for name in ("down", "up", "backhaul"):
        if counts[name] != getattr(reported, name):
            yield f"bytes.{name}: summary.json has {getattr(reported, name)}, the log sums to {counts[name]}"


def carried(record: Record) -> Iterator[str]:
    """The interfaces of an emulated run carried at least the bytes of the clients' transfers in the log.

    Those of a resumed run are compared from its resumption on.
    """
    if record.emulation is None:
        return
    moved, resumed = {"down": 0, "up": 0}, record.emulation.after_round == 0
    for event in record.events:
        resumed |= event.kind == "round_end" and event.round == record.emulation.after_round
        if resumed and event.kind in ("transfer_end", "transfer_drop") and event.item != "relay":
            moved["up" if event.item == "up" else "down"] += int(event.bytes)
    for name, bytes in moved.items():
        found = getattr(record.emulation.wire_bytes, name)
        if found < bytes:
            yield f"wire_bytes.{name}: emulation.json has {found}, the log's transfers delivered {bytes}"


def yardstick(record: Record) -> Iterator[str]:
    """The ratio of predicted makespans to the shortest ones for the same numbers of blocks matches the decisions."""
    reported = record.summary.blocks
    sums = {"foreseen_seconds": 0.0, "least_seconds": 0.0}
    for event in record.of("decision"):
        found = event.facts
        if event.item == "blocks" and isinstance(found.get("foreseen_seconds"), float):
            if found["foreseen_seconds"] < found["least_seconds"]:
                yield f"{at(event)}: the predicted makespan of a choice is shorter than the shortest possible one"
            for name in sums:
                sums[name] += found[name]
    expected = sums["foreseen_seconds"] / sums["least_seconds"] if sums["least_seconds"] else None
    given = None if reported is None else reported.makespan_over_least
    if (given is None) != (expected is None) or (
        given is not None and not close(given, expected or 0.0, tolerance=1e-7)
    ):
        yield f"blocks.makespan_over_least: summary.json has {given}, the log gives {expected}"


def front_age(record: Record) -> Iterator[str]:
    """The mean age of front blocks matches the log's computations and the blocks sent for them."""
    reported = record.summary.blocks
    if reported is None:
        return
    last = range(max((event.alpha for event in record.of("work")), default=0), 0, -1)
    sent: dict[tuple[int, int], int] = {}
    ages = []
    for event in record.events:
        if event.kind == "transfer_end" and event.item == "broadcast":
            sent |= dict.fromkeys(((event.client, block) for block in last), event.round)
        if event.kind not in ("compute_end", "compute_partial"):
            continue
        for count, block in enumerate(last, 1):
            if count > event.alpha:
                ages.append(event.round - sent.get((event.client, block), 1))
            else:
                sent[event.client, block] = event.round
    expected = sum(ages) / len(ages) if ages else None
    given = reported.front_age
    if (given is None) != (expected is None) or (given is not None and not close(given, expected or 0.0)):
        yield f"blocks.front_age: summary.json has {given}, the log gives {expected}"


def broadcasts(record: Record) -> Iterator[str]:
    """Only absentees of a round are broadcast its model, and jobs continue from the newest one since the last job."""
    cohorts: dict[int, set[int]] = {}
    fronts: dict[int, int] = {}
    blocks = max((event.alpha for event in record.of("work")), default=0)
    for event in record.events:
        if event.kind == "decision" and event.item == "selection":
            cohorts[event.round] = set(event.facts.get("clients", ()))
        elif event.kind == "transfer_start" and event.item == "broadcast":
            if event.client in cohorts.get(event.round, ()):
                yield f"{at(event)}: the client is broadcast the model of a round in which it takes part"
        elif event.kind == "transfer_end" and event.item == "broadcast":
            fronts[event.client] = event.round - 1
        elif event.kind in ("compute_end", "compute_partial"):
            fronts.pop(event.client, None)
        elif event.kind == "compute_start" and (fronts or "front" in event.facts):
            expected = fronts.get(event.client) if event.alpha < blocks else None
            if event.facts.get("front") != expected:
                found = event.facts.get("front")
                yield f"{at(event)}: continues from the broadcast model {found}, the newest one is {expected}"


LAWS = (fates, directions, carried, yardstick, front_age, broadcasts)
