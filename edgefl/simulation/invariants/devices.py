"""A client does one thing at a time, and durations and energy match its device's profile."""

from __future__ import annotations

import math
from collections.abc import Iterator

from edgefl.fleet import compute_joules, fits, idle_joules, step_seconds
from edgefl.record.events import ABSENT, Event
from edgefl.simulation.invariants.computing import computations as found_computations
from edgefl.simulation.invariants.record import Record, at, close
from edgefl.wording import with_article

_BEGINS = {"transfer_start": "sends or receives", "compute_start": "computes"}
_ENDS = {"transfer_end", "transfer_drop", "compute_end", "compute_partial", "compute_drop"}


def one_place(record: Record) -> Iterator[str]:
    """A client does not compute or transfer twice at once, except for prefetches and broadcasts."""
    busy: dict[int, Event] = {}
    for event in record.events:
        if event.item in ("prefetch", "broadcast") or event.client < 0:
            continue
        if event.kind in _BEGINS:
            before = busy.get(event.client)
            if before is not None:
                since = f"{before.kind} at {before.time:.6f} s"
                yield f"{at(event)}: the client {_BEGINS[event.kind]} during its {since}"
            busy[event.client] = event
        elif event.kind in _ENDS:
            begun = busy.pop(event.client, None)
            if begun is None:
                yield f"{at(event)}: no transfer or computation was in progress"
            elif begun.kind.split("_")[0] != event.kind.split("_")[0]:
                yield f"{at(event)}: {with_article(begun.kind)} was in progress"
            elif event.kind.startswith("compute") and not close(
                event.time - begun.time, event.seconds, clock=event.time
            ):
                yield f"{at(event)}: computed for {event.time - begun.time:g} s, not {event.seconds:g} s"
    for client, event in sorted(busy.items()):
        yield f"{at(event)}: client {client} never ends this"


def work_costs(record: Record) -> Iterator[str]:
    """Each kind of work takes cost / throughput: step costs from ``costs.json``, throughput from the profile."""
    profiles = {profile.name: profile for profile in record.fleet.profiles}
    for event in record.of("work"):
        found, profile = event.facts, profiles.get(event.item)
        try:
            batches = {int(size): int(count) for size, count in found["batches"].items()}
            costs = {size: record.costs[event.alpha, size, int(found.get("level", 0))] for size in batches}
        except (KeyError, ValueError, AttributeError):
            yield f"{at(event)}: {_named(event)} has no step cost"
            continue
        if profile is None:
            yield f"{at(event)}: {_named(event)} is on no device of the fleet"
            continue
        # The work of a Flower app also waits, and has other overhead than one step's.
        other = _number(found.get("other_seconds", 0.0))
        seconds, hot = (
            other
            + sum(count * step_seconds(profile, costs[size].operators, hot=hot) for size, count in batches.items())
            for hot in (False, True)
        )
        flops = sum(count * costs[size].training_flops for size, count in batches.items())
        peak = max((cost.peak_memory_bytes for cost in costs.values()), default=0.0)
        for what, logged, expected in (
            ("seconds", event.seconds, seconds),
            ("seconds when hot", _number(found.get("hot_seconds")), hot),
            ("FLOP", event.flops, flops),
            ("joules", event.joules, compute_joules(profile, seconds)),
            ("bytes of memory", float(event.bytes), float(int(peak))),
        ):
            if not close(logged, expected):
                yield f"{at(event)}: {_named(event)} takes {logged:g} {what}, cost / throughput is {expected:g}"
        if fits(profile, peak) != found.get("fits"):
            marked = "fitting" if found.get("fits") else "not fitting"
            yield f"{at(event)}: {_named(event)} is marked as {marked} its device"


def computations(record: Record) -> Iterator[str]:
    """Every computation is known work on the client's own device; a whole one has the work's FLOPs and steps."""
    for each in found_computations(record):
        event, work, pace = each.end, each.work, each.pace
        if work is None or pace is None:
            yield f"{at(event)}: unknown {_named(event)}"
            continue
        profile = record.fleet.profile_of(event.client)
        if work.item != profile.name:
            yield f"{at(event)}: {_named(event)} belongs to another device than the client's"
        if not (0 < each.steps <= work.value or each.steps == work.value == 0):
            yield f"{at(event)}: began with {each.steps:g} of {work.value:g} local steps"
        if event.kind != "compute_drop" and not close(event.value, each.steps):
            yield f"{at(event)}: took {event.value:g} local steps, began with {each.steps:g}"
        whole = abs(event.value - round(event.value)) <= 1e-6
        if event.kind == "compute_partial" and not (0 < event.value < work.value and whole):
            yield f"{at(event)}: took {event.value:g} of {work.value:g} local steps"
        if (event.kind == "compute_end" and not close(event.flops, work.flops)) or not close(
            event.joules, compute_joules(profile, event.seconds)
        ):
            yield f"{at(event)}: FLOPs or joules are not the work's"


def paces(record: Record) -> Iterator[str]:
    """A computation is slowed down by the seed's draws and by throttling, and FLOPs are counted for the done part."""
    for each in found_computations(record):
        event, work, pace = each.end, each.work, each.pace
        if work is None or pace is None:
            continue  # the law above reports it
        if event.kind == "compute_end" and not close(event.seconds, pace.seconds):
            yield f"{at(event)}: took {event.seconds:g} s, the work takes {pace.seconds:g} s"
        share = event.value / work.value if 0 < event.value < work.value else math.nan
        if event.kind == "compute_partial" and not close(pace.done(event.seconds), share):
            yield f"{at(event)}: {event.value:g} steps took {event.seconds:g} s, a different share of the work"
        if event.seconds > each.planned_seconds * (1 + 1e-9) + 4 * math.ulp(event.time):
            yield f"{at(event)}: was aborted after {event.seconds:g} s of {each.planned_seconds:g} s"
        flops = work.flops * (pace.done(event.seconds) if pace.seconds else 1.0)
        if event.kind != "compute_end" and not close(event.flops, flops):
            yield f"{at(event)}: FLOPs are not those of the done part"


def _named(work: Event) -> str:
    if work.images == ABSENT:
        return f"work {work.work[2]} on '{work.item}'"
    return f"work on '{work.item}' with {work.alpha} blocks and {work.images} images"


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def waiting(record: Record) -> Iterator[str]:
    """A waiting device draws its idle power."""
    for event in record.of("idle"):
        if not 0 <= event.client < len(record.fleet.group):
            yield f"{at(event)}: there is no such client"
            continue
        profile = record.fleet.profile_of(event.client)
        joules = idle_joules(profile, event.seconds)
        short = event.joules < joules and profile.battery is not None
        if not short and not close(joules, event.joules):
            yield f"{at(event)}: drew {event.joules:g} J, the profile gives {joules:g} J"


def forward_passes(record: Record) -> Iterator[str]:
    """A forward pass on an image executes a third of the FLOPs of a training step on it."""
    works = {event.work: event for event in record.of("work")}
    for event in record.of("forward"):
        work = works.get(event.work)
        steps = {} if work is None else work.facts.get("batches", {})
        trained = sum(int(size) * count for size, count in steps.items())
        if work is None or not close(event.flops * 3 * trained, work.flops * event.value):
            yield f"{at(event)}: {event.flops:g} FLOPs on {event.value:g} images are not a third of the training's"


LAWS = (one_place, work_costs, computations, paces, waiting, forward_passes)
