"""Time never goes back, rounds follow each other, and only clients of the cohort participate."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from edgefl.record.kinds import BUDGETS
from edgefl.simulation.invariants.record import Record, at, close
from edgefl.simulation.protocol_specs import AsynchronousSpec


def clock(record: Record) -> Iterator[str]:
    """Time never goes back, and nothing happens after the stop."""
    now = 0.0
    for event in record.events:
        if not event.time >= now:
            yield f"{at(event)}: time goes back from {now:.6f} s"
        now = max(now, event.time)
    stops = list(record.of("stop"))
    if len(stops) != 1 or record.events[-1].kind != "stop":
        yield f"expected one stop as the last event, found {len(stops)}"


def readable(record: Record) -> Iterator[str]:
    """Details are valid JSON."""
    for event in record.events:
        if event.detail and not event.facts:
            yield f"{at(event)}: the details cannot be read"


def rounds_in_order(record: Record) -> Iterator[str]:
    """Rounds are numbered 1, 2, 3, …; each starts when the previous one has ended, and aggregates once."""
    begun = ended = aggregated = 0
    end_of_last = 0.0
    for event in record.events:
        if event.kind == "round_start":
            begun += 1
            if event.round != begun or begun != ended + 1:
                yield f"{at(event)}: round {event.round} starts after round {ended} ended"
        elif event.kind == "aggregation":
            aggregated += 1
            if event.round != aggregated or aggregated != begun:
                yield f"{at(event)}: aggregation of round {event.round} during round {begun}"
        elif event.kind == "round_end":
            ended += 1
            if event.round != ended or ended != begun:
                yield f"{at(event)}: round {event.round} ends during round {begun}"
            if not close(event.value, event.time - end_of_last, clock=event.time):
                yield f"{at(event)}: the round lasted {event.time - end_of_last:g} s, not {event.value:g} s"
            end_of_last = event.time
    failed_within = any(True for _ in record.of("fault")) and aggregated == ended + 1  # after an aggregation
    if ended != aggregated and not failed_within:
        yield f"{ended} rounds ended, {aggregated} aggregated"


def seamless(record: Record) -> Iterator[str]:
    """Each round starts at the moment at which the previous one has ended."""
    end_of_last = 0.0
    for event in record.events:
        if event.kind == "round_start" and not close(event.time, end_of_last):
            yield f"{at(event)}: the round starts {event.time - end_of_last:g} s after the previous one ended"
        elif event.kind == "round_end":
            end_of_last = event.time


def cohorts(record: Record) -> Iterator[str]:
    """A client that is active in a round was selected or asked for it; without common rounds, selected for each job."""
    selected: dict[int, set[int]] = {}
    asked: dict[int, set[int]] = {}
    times: Counter[int] = Counter()
    without_rounds = isinstance(record.protocol, AsynchronousSpec)
    for event in record.events:
        if event.kind == "decision" and event.item == "selection":
            clients = event.facts.get("clients", ())
            selected.setdefault(event.round, set()).update(clients)
            times.update(clients)
        elif event.kind == "decision" and event.item == "asked":
            asked.setdefault(event.round, set()).update(map(int, event.facts.get("local_losses", ())))
        elif event.client in asked.get(event.round, ()) and (event.item == "prefetch" or event.kind == "forward"):
            continue
        elif event.kind == "transfer_start" and event.item != "relay" and without_rounds:
            if not event.dispatch < times[event.client]:
                yield f"{at(event)}: job {event.dispatch} of a client that was selected {times[event.client]} times"
        elif (
            without_rounds
            or event.item in ("relay", "broadcast")
            or event.kind not in ("transfer_start", "compute_start", "forward")
        ):
            continue
        elif event.client not in selected.get(event.round, ()):
            yield f"{at(event)}: the client was not selected for round {event.round}"


def versions(record: Record) -> Iterator[str]:
    """Without common rounds, a job begins with the latest model, whatever its client prefetched."""
    if not isinstance(record.protocol, AsynchronousSpec):
        return
    latest = 1
    known: set[tuple[int, int]] = set()
    for event in record.events:
        if event.kind == "aggregation":
            latest = event.round + 1
        elif event.kind == "dispatch" or (event.kind == "transfer_start" and event.item == "down"):
            if event.job not in known and event.round != latest:
                job = f"job {event.dispatch}"
                yield f"{at(event)}: {job} begins from model {event.round - 1}, the latest is {latest - 1}"
            known.add(event.job)


def updates(record: Record) -> Iterator[str]:
    """An aggregated client had sent its update, which counts once and, if it may be old, is weighted by its age."""
    uploaded: dict[tuple[int, int], int] = {}
    mixing = record.protocol if isinstance(record.protocol, AsynchronousSpec) else None
    for event in record.events:
        if event.kind == "transfer_end" and event.item == "up":
            uploaded[event.job] = event.round
        if event.kind != "aggregation":
            continue
        found = event.facts
        jobs = list(zip(found.get("clients", ()), found.get("dispatches", ()), strict=False))
        if event.value != len(found.get("clients", ())) or event.value != len(jobs):
            yield f"{at(event)}: {event.value:g} updates were aggregated, {len(jobs)} are listed"
        ages = []
        for job in jobs:
            begun = uploaded.pop(job, None)
            if begun is None or (mixing is None and begun != event.round):
                yield f"{at(event)}: client {job[0]} had sent no update for round {event.round}"
            else:
                ages.append(event.round - begun)
        if mixing is not None and ages != found.get("staleness"):
            yield f"{at(event)}: the updates are {ages} aggregations old, not {found.get('staleness')}"
        if mixing is not None and [mixing.factor(age) for age in ages] != found.get("factors"):
            yield f"{at(event)}: updates that are {ages} aggregations old count {found.get('factors')}"


def ending(record: Record) -> Iterator[str]:
    """The run ended for the stated reason."""
    stop = record.events[-1]
    reason = stop.item
    if reason != record.summary.stop.reason:
        yield f"summary.json has the stop reason {record.summary.stop.reason}, the log has {reason}"
    if reason in BUDGETS and not any(event.item == reason for event in record.of("budget")):
        yield f"{at(stop)}: the budget on {reason} was not exhausted"
    for event in record.of("budget"):
        if event.item == "seconds" and not close(event.time, event.value):
            yield f"{at(event)}: {event.value:g} s were exhausted at {event.time:g} s"


def targets(record: Record) -> Iterator[str]:
    """A target is reached at the first evaluation that is good enough."""
    metric = record.summary.metric.metric
    reached = {event.value: event for event in record.of("target")}
    for target in record.summary.targets:
        event = reached.get(target.value)
        if target.reached != (event is not None):
            yield f"target {target.value:g}: summary.json and the log disagree on whether it was reached"
        elif event is not None and not (close(event.time, target.seconds or 0.0) and event.round == target.rounds):
            yield f"{at(event)}: summary.json has {target.seconds or 0.0:g} s, round {target.rounds}"
    for event in reached.values():
        if not any(
            found.round == event.round
            and any(metric.reaches(value, event.value) for value in (found.value, _number(found.facts.get("ema"))))
            for found in record.of("evaluation")
        ):
            yield f"{at(event)}: no evaluation of round {event.round} reaches {event.value:g}"


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else -math.inf


LAWS = (clock, readable, rounds_in_order, seamless, cohorts, versions, updates, ending, targets)
