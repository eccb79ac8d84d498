"""Successive halving: all settings train a little, the best go on where they were, until one a method is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgefl.experiment.pausing import Pause
from edgefl.scenario.sweep import HalvingSpec
from edgefl.sweep.choice import mean_by
from edgefl.sweep.jobs import Job
from edgefl.sweep.sweeping import Search


def halving(candidates: Sequence[Sequence[Job]], spec: HalvingSpec) -> Search:
    """The jobs of successive halving, a rung after the other; each method is a race of its own.

    A setting that goes on is not trained again from its start: its run was left with a checkpoint, and is gone on
    with. Where runs are over before a rung, they count with what they came to. Of equal settings the first goes on.

    Args:
        candidates: for each method and setting the jobs of all seeds, each of one method.
        spec: how much each rung gives, and how many go on.
    """
    racing = [list(jobs) for jobs in candidates]
    rung = 0
    while True:
        methods = list(dict.fromkeys(jobs[0].methods[0] for jobs in racing))
        pause = _pause(spec, rung)
        rounds = max(job.scenario["training"]["rounds"] for jobs in racing for job in jobs)
        last = len(racing) == len(methods) or (pause.rounds is not None and pause.rounds >= rounds)
        asked = [[replace(job, pause=None if last else pause) for job in jobs] for jobs in racing]
        figures = iter((yield [job for jobs in asked for job in jobs]))
        if last:
            return
        values = [mean_by(spec.metric, [next(figures) for _ in jobs]) for jobs in asked]
        kept: set[int] = set()
        for method in methods:
            places = [place for place, jobs in enumerate(racing) if jobs[0].methods[0] == method]
            places.sort(key=lambda place: -values[place])
            kept |= set(places[: max(1, len(places) // spec.factor)])
        racing = [jobs for place, jobs in enumerate(racing) if place in kept]
        rung += 1


def _pause(spec: HalvingSpec, rung: int) -> Pause:
    given = spec.least * spec.factor**rung
    return Pause(rounds=round(given)) if spec.of == "rounds" else Pause(seconds=given)
