"""Successive halving: all settings train briefly, the best continue, until one setting per method is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgefl.experiment.pausing import Pause
from edgefl.scenario.sweep import HalvingSpec
from edgefl.sweep.choice import merit, metric_of
from edgefl.sweep.jobs import Job
from edgefl.sweep.sweeping import Search


def halving(candidates: Sequence[Sequence[Job]], spec: HalvingSpec) -> Search:
    """Yield the jobs of successive halving, rung by rung; the settings of each method compete separately.

    A setting that is kept continues from the checkpoint of its paused run and is not trained from the start again. A
    run that ended before a rung counts with its final figures. Of equal settings the first is kept.

    Args:
        candidates: for each method and setting, the jobs of all seeds; each job has one method.
        spec: how long each rung trains, and how many settings are kept.
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
        values = [merit(spec.metric, [next(figures) for _ in jobs], metric_of(jobs[0])) for jobs in asked]
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
