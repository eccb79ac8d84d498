"""How the seconds of an emulation were measured."""

from __future__ import annotations

from collections import Counter

from edgefl.report.run_record import RunRecord
from edgefl.wording import listed


def measured_sentences(run: RunRecord) -> list[str]:
    """How the seconds of a run were measured, and what makes them doubtful; nothing if all of them are computed.

    Raises:
        UserError: an ``emulation.json`` cannot be read.
    """
    found = [run.emulation_of(label, each.seed) for label, results in run.results.items() for each in results]
    known = [each for each in found if each is not None]
    ways = Counter(each.words for each in known)
    if not ways:
        return []
    if len(ways) == 1 and None not in found:
        how = f"The seconds are measured in an emulation, not computed ({next(iter(ways))})."
    else:
        runs = [f"{count} of {len(found)} runs with {words}" for words, count in ways.items()]
        how = f"Seconds are measured in an emulation, not computed: {listed(runs)}."
    doubts = dict.fromkeys(line for each in known for line in each.trust)
    return [how, *(f"These seconds are doubtful: {line}." for line in doubts)]
