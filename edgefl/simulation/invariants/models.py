"""A model is written to by the server's update alone: trained and evaluated is what aggregation made."""

from __future__ import annotations

from collections.abc import Iterator

from edgefl.simulation.invariants.record import Record, at, facts


def untouched(record: Record) -> Iterator[str]:
    """Each aggregation begins with the model that the one before made, and evaluation reads what the last one made.

    The log of an older edgefl holds no digests.
    """
    run = next(record.of("run"), None)
    latest = None if run is None else facts(run).get("model")
    if latest is None:
        return
    for event in record.events:
        if event.kind == "aggregation":
            found = facts(event)
            if found.get("before") != latest:
                yield f"{at(event)}: the server's model was changed after it was made, before this aggregation"
            if not found.get("clients") and found.get("model") != found.get("before"):
                yield f"{at(event)}: nothing was aggregated, and the model is another"
            latest = found.get("model")
        elif event.kind == "evaluation" and facts(event).get("model") != latest:
            yield f"{at(event)}: the model that was evaluated is not the one that the last aggregation made"


LAWS = (untouched,)
