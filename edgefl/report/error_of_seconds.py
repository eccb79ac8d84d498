"""How a run's seconds came about, and what they are worth: measured in an emulation, or by the evidence of profiles."""

from __future__ import annotations

from collections import Counter
from math import exp, hypot, log
from statistics import fmean
from typing import TYPE_CHECKING, Any

from edgefl.fleet.profile import UNKNOWN
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


FACTOR = 3.0
"""UNKNOWN as one number: five kinds of Jetson took 1.1 to 2.9 times the predicted seconds."""

SPREAD = 2.45
"""The half width of a 95 % interval, of a normal distribution whose mean absolute error is 1."""

WATTS, ONE_CORE_WATTS = 2.2, 1.13
"""Predicted over measured watts of boards in federated rounds: by full load (12 of 5.5 W), and where the watts of one
busy core are known."""


def expected_error(run: RunResult) -> list[str]:
    """How far computed seconds and joules may be from real ones, by the evidence of the fleet's profiles."""
    errors: dict[str, list[str]] = {}
    for profile, _ in _profiles(run):
        error = _error(profile)
        words = UNKNOWN if error is None else f"±{100 * error:.0f} %"
        if (profile.get("compute") or {}).get("measured_steps"):
            words += " where no measured step serves"
        names = errors.setdefault(words, [])
        if (name := str(profile.get("name"))) not in names:
            names.append(name)
    each = [f"{words} ({', '.join(names)})" for words, names in errors.items()]
    return [*error_interval(run), f"Seconds of training are known to {listed(each)}."] if each else []


def error_interval(run: RunResult) -> list[str]:
    """The same as 95 % intervals of the factors on seconds and joules, in one sentence; none if all are measured.

    Training takes all devices' errors at once, each by its share of the fleet; transfers have none. Joules have the
    error of watts, too.
    """
    profiles, moments = _profiles(run), [each for results in run.moments.values() for each in results if each.seconds]
    total = sum(weight for _, weight in profiles)
    if not total or not moments:
        return []
    training = fmean(min(1.0, max(0.0, 1 - each.communication.exposed_seconds / each.seconds)) for each in moments)
    slower = watts = 0.0
    for profile, weight in profiles:
        error = _error(profile)
        slower += weight / total * (log(FACTOR) if error is None else SPREAD * error)
        known = (profile.get("power") or {}).get("one_core") is not None
        watts += weight / total * log(ONE_CORE_WATTS if known else WATTS)
    seconds = [1 - training + training * exp(sign * slower) for sign in (-1, 1)]
    joules = [exp(sign * hypot(log(each), watts)) for sign, each in zip((-1, 1), seconds, strict=True)]
    (low, high), (least, most) = ([f"{each:#.2g}".rstrip(".") for each in pair] for pair in (seconds, joules))
    time = f"Real seconds: {low} to {high} times these"
    if max(abs(log(each)) for each in seconds) < 0.05:
        time = "Seconds are those of the links: transfers fill the time"
    return [f"{time}, real joules: {least} to {most} times (profiles' evidence, 95 %)."]


def _profiles(run: RunResult) -> list[tuple[dict[str, Any], float]]:
    """The profiles whose seconds a run used, and the share or number of their clients."""
    fleet, cost = run.scenario.get("fleet"), run.scenario.get("cost") or {}
    groups = [each for each in fleet if isinstance(each, dict)] if isinstance(fleet, list) else []
    if measured_sentences(run) or cost.get("kind") == "seconds":
        return []
    return [
        (each["profile"], len(each.get("clients") or ()) or each.get("count") or each.get("share") or 0.0)
        for each in groups
        if isinstance(each.get("profile"), dict)
    ]


def _error(profile: dict[str, Any]) -> float | None:
    """The held-out error of a profile's step seconds; ``None`` if it is not known."""
    error: Any = profile
    for key in ("provenance", "evidence", "compute", "error"):
        error = error.get(key) if isinstance(error, dict) else None
    return error if isinstance(error, int | float) else None
