"""How a run's seconds came about, and what they are worth: measured in an emulation, or by the evidence of profiles."""

from collections import Counter
from math import exp, hypot, log, log1p
from statistics import fmean
from typing import Any

import numpy as np

from edgefl.fleet.profile import UNKNOWN, error_words
from edgefl.record.emulation import read_emulation
from edgefl.record.figures import at
from edgefl.record.summary import SeedResult
from edgefl.report.run_result import RunResult
from edgefl.wording import grouped, listed


def measured_sentences(run: RunResult) -> list[str]:
    """How the seconds of a run were measured, and what makes them doubtful; nothing if all of them are computed."""
    found = [read_emulation(run.of(label, e.seed).emulation) for label, results in run.results.items() for e in results]
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
    errors = []
    for profile, _, error in _profiles(run):
        words = UNKNOWN if error is None else error_words(error)
        words += " where no measured step serves" * bool(at(profile, "compute.measured_steps"))
        errors += [(words, str(profile.get("name")))] * (error != 0.0)  # else it is declared
    each = [f"{words} ({', '.join(dict.fromkeys(names))})" for words, names in grouped(errors).items()]
    return [*error_interval(run), *([f"Seconds of training are known to {listed(each)}."] if each else [])]


def error_interval(run: RunResult) -> list[str]:
    """The same as 95 % intervals of the factors on seconds and joules, in one sentence; none if all are measured.

    Training takes all devices' errors at once, each by its share of the fleet; transfers, the framework, declared
    seconds and rounds that a deadline closed have none. Joules have the error of watts, too.
    """
    profiles, compared = _profiles(run), [each for each in run.moments.items() if each[0] not in run.baselines]
    parts = [_trained(run, label, each) for label, results in compared for each in results if each.seconds]
    total = sum(weight for _, weight, _ in profiles)
    if not total or not parts:
        return []
    parts_of_joules, parts_of_seconds = zip(*parts, strict=True)
    slower = watts = 0.0
    for profile, weight, error in profiles:
        slower += weight / total * (log(FACTOR) if error is None else SPREAD * log1p(error))
        watts += weight / total * log(WATTS if at(profile, "power.one_core") is None else ONE_CORE_WATTS)
    seconds, training = (
        [1 + fmean(each) * (exp(sign * slower) - 1) for sign in (-1, 1)] for each in (parts_of_seconds, parts_of_joules)
    )
    joules = [exp(sign * hypot(log(each), watts)) for sign, each in zip((-1, 1), training, strict=True)]
    (low, high), (least, most) = ([f"{each:#.2g}".rstrip(".") for each in pair] for pair in (seconds, joules))
    time = f"Real seconds: {low} to {high} times these"
    if max(abs(log(each)) for each in seconds) < 0.05:
        framework, cut = any((run.option("round_overhead") or {}).values()), parts_of_seconds != parts_of_joules
        causes = {"the links": True, "declared training": not slower, "the framework": framework, "deadlines": cut}
        time = f"Seconds are those of {listed([name for name, there in causes.items() if there])}"
    return [f"{time}, real joules: {least} to {most} times (profiles' evidence, 95 %)."]


def _trained(run: RunResult, label: str, moment: SeedResult) -> list[float]:
    """The parts of a seed's seconds in which closing clients train: in all rounds, and without those of deadlines."""
    rounds = run.columns_of(label, moment.seed)
    lasted, by_deadline = np.diff(rounds["seconds"], prepend=0.0), rounds["critical_client"] < 0
    cut = lasted[: moment.rounds][by_deadline[: moment.rounds]].sum()
    training = moment.seconds - moment.communication.exposed_seconds
    return [min(1.0, max(0.0, float(each) / moment.seconds)) for each in (training, training - cut)]


def _profiles(run: RunResult) -> list[tuple[dict[str, Any], float, float | None]]:
    """The profiles of a run that is computed, the share or number of their clients, and the error of their seconds."""
    given = run.option("cost.kind") == "seconds"
    return [
        (profile, len(each.get("clients") or ()) or each.get("count") or each.get("share") or 0.0, error)
        for each in run.fleet
        if isinstance(profile := each.get("profile"), dict) and not measured_sentences(run)
        for error in [0.0 if given else at(profile, "provenance.evidence.compute.error")]
    ]
