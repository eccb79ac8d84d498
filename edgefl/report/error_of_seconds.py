"""How a run's seconds came about, and what they are worth: measured in an emulation, or by the evidence of profiles."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from edgefl.wording import listed

if TYPE_CHECKING:
    from edgefl.report.run_result import RunResult


def measured_sentences(run: RunResult) -> list[str]:
    """How the seconds of a run were measured, and what makes them doubtful; nothing if all of them are computed."""
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


UNKNOWN = "a factor of 2 to 3"
"""The error of a profile of which no held-out error is known, as the published deployments have it."""


def expected_error(run: RunResult) -> list[str]:
    """How far computed seconds and joules may be from real ones, by the evidence of the fleet's profiles."""
    fleet = run.scenario.get("fleet")
    groups = [each for each in fleet if isinstance(each, dict)] if isinstance(fleet, list) else []
    profiles = [each["profile"] for each in groups if isinstance(each.get("profile"), dict)]
    if not profiles or measured_sentences(run):
        return []
    errors: dict[str, list[str]] = {}
    for profile in profiles:
        error: Any = profile
        for key in ("provenance", "evidence", "compute", "error"):
            error = error.get(key) if isinstance(error, dict) else None
        words = f"±{100 * error:.0f} %" if isinstance(error, int | float) else UNKNOWN
        names = errors.setdefault(words, [])
        if (name := str(profile.get("name"))) not in names:
            names.append(name)
    each = [f"{words} ({', '.join(names)})" for words, names in errors.items()]
    return [
        f"Seconds of training are known to {listed(each)}, by the evidence of the profiles; joules at best as well, "
        "because their watts are mostly estimates."
    ]
