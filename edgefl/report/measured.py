"""Whether the seconds of a run were measured in an emulation."""

from __future__ import annotations

from collections import Counter

from edgefl.report.run_record import RunRecord
from edgefl.wording import listed


def measured_sentence(run: RunRecord) -> str | None:
    """A sentence that seconds of a run were measured, and how; ``None`` if all of them are computed.

    Raises:
        UserError: an ``emulation.json`` cannot be read.
    """
    found = [run.emulation_of(label, each.seed) for label, results in run.results.items() for each in results]
    ways = Counter(each.words for each in found if each is not None)
    if not ways:
        return None
    if len(ways) == 1 and None not in found:
        return f"The seconds are measured in an emulation, not computed ({next(iter(ways))})."
    runs = [f"{count} of {len(found)} runs with {words}" for words, count in ways.items()]
    return f"Seconds are measured in an emulation, not computed: {listed(runs)}."
