"""No client works past its round's deadline, and adaptive deadlines follow from the durations before them."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from edgefl.simulation.deadlines import AdaptiveDeadline
from edgefl.simulation.invariants.record import Record, at, close
from edgefl.simulation.protocol_specs import AsynchronousSpec, HierarchicalSpec


def deadlines(record: Record) -> Iterator[str]:
    """No client works after its round's deadline; without averaging cells the round has ended by then."""
    protocol = record.protocol
    limits = _limits(record)
    if isinstance(protocol, AsynchronousSpec) or not limits:
        return
    begun, current = 0.0, 0
    for event in record.events:
        limit = limits.get(current)
        late = limit is not None and event.time > begun + limit * (1 + 1e-9) + 1e-9
        if event.kind == "round_end" and late and not isinstance(protocol, HierarchicalSpec):
            yield f"{at(event)}: the round ends {event.time - begun:g} s after its start"
        aside = event.item in ("relay", "prefetch", "broadcast")
        works = event.kind.startswith(("transfer_", "compute_")) and not aside
        if works and late:
            yield f"{at(event)}: is active {event.time - begun:g} s after the round's start"
        if event.kind == "round_start":
            begun, current = event.time, event.round
        elif event.kind == "decision" and event.item == "selection" and event.round == current:
            begun = event.time  # no client could be picked when the round began


def adaptive(record: Record) -> Iterator[str]:
    """Each adaptive deadline is that of the durations before it."""
    logged = {event.round: event for event in record.of("decision") if event.item == "deadline"}
    adapts = isinstance(getattr(record.protocol, "deadline", None), AdaptiveDeadline)
    limits = _limits(record, work=False) if adapts else {}
    for round, event in logged.items():
        found, expected = event.facts.get("seconds"), limits.get(round)
        if expected is None or not isinstance(found, float) or not close(found, expected):
            yield f"{at(event)}: the deadline is {found} s, the durations before it give {expected} s"
    for event in record.of("round_end"):
        if event.round in limits and event.round not in logged:
            yield f"{at(event)}: the round has a deadline of {limits[event.round]:g} s, which the log does not have"


def _limits(record: Record, *, work: bool = True) -> dict[int, float]:
    """The seconds until the deadline of each round that has one.

    With ``work``, a common finish of local work is a deadline if late updates are dropped.
    """
    spec = getattr(record.protocol, "deadline", None)
    begun, current = 0.0, 0
    durations: dict[tuple[int, int], float] = {}
    seen: list[list[float]] = []
    limits: dict[int, float] = {}
    for event in record.events:
        if event.kind == "round_start" or (
            event.kind == "decision" and event.item == "selection" and event.round == current
        ):
            begun, current = event.time, event.round
            if isinstance(spec, AdaptiveDeadline):
                known = [each for round in seen[-spec.rounds :] for each in round]
                middle = median(known) if known else 0.0
                spread = median(abs(each - middle) for each in known) if known else 0.0
                limit = middle + spec.deviations * spread if known else spec.first
            else:
                limit = spec
            if limit is not None:
                limits[current] = limit
        elif work and event.kind == "decision" and event.item == "local work" and event.round == current:
            finish = event.facts.get("seconds")
            if event.facts.get("drop_late") and isinstance(finish, float):
                limits[current] = min(finish, limits.get(current, finish))
        elif event.round == current and (
            (event.kind == "transfer_end" and event.item == "up") or (event.kind == "lost" and event.item == "late")
        ):
            durations[event.job] = event.time - begun
        elif event.kind == "round_end":
            seen += [list(durations.values())] if durations else []
            durations = {}
    return limits


LAWS = (deadlines, adaptive)
