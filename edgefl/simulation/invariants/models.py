"""Only the server's update changes a model: clients train and the server evaluates the aggregated model."""

from __future__ import annotations

from collections.abc import Iterator

from edgefl.simulation.invariants.record import Record, at


def untouched(record: Record) -> Iterator[str]:
    """Each aggregation begins with the model of the previous one, and evaluation reads the model of the last one.

    The log of a run without training contains no digests.
    """
    run = next(record.of("run"), None)
    latest = None if run is None else run.facts.get("model")
    if latest is None:
        return
    for event in record.events:
        if event.kind == "aggregation":
            found = event.facts
            if found.get("before") != latest:
                yield f"{at(event)}: the server's model was changed outside of an aggregation, before this one"
            if not found.get("clients") and found.get("model") != found.get("before"):
                yield f"{at(event)}: nothing was aggregated, but the model changed"
            latest = found.get("model")
        elif event.kind == "evaluation" and event.facts.get("model") != latest:
            yield f"{at(event)}: the evaluated model is not the result of the last aggregation"


LAWS = (untouched,)
