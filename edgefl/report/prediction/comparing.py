"""Two run directories of one scenario, read and compared method by method, up to the first decision that differs.

Some decisions depend on times: whom a selector picks, how many blocks a client receives, whose update arrives before a
deadline. From the first one that differs, the runs train different models on different clients, and their rounds are
no longer the same rounds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from edgefl.errors import UserError
from edgefl.record.emulation import Emulation, read_emulation
from edgefl.record.summary import SeedResult
from edgefl.report.prediction.gaps import Bands, Gap, Order, Place, order_of, read_bands
from edgefl.report.quantities import limit
from edgefl.report.rows import differing
from edgefl.report.run_result import RunResult
from edgefl.report.timeline.data import Timeline, read_timeline
from edgefl.report.timeline.usage import PHASES, jobs_of

Targets = dict[float, tuple[float, float]]
"""The mean predicted and measured seconds to each target; infinite if a seed never reached it."""


class Decisions(NamedTuple):
    """How far two runs made the same decisions."""

    differences: dict[str, list[int]]  # for each kind of decisions that differ, the rounds, in order
    rounds: int  # the rounds that both runs completed
    same: int  # the first of these rounds, up to the first decision that differs


def compare_decisions(predicted: Timeline, measured: Timeline) -> Decisions:
    """Compare the cohorts, the numbers of blocks and the aggregated clients of two timelines, round by round."""
    rounds = min(len(predicted.rounds), len(measured.rounds))

    def facts(timeline: Timeline) -> dict[str, dict[int, object]]:
        return {
            "cohort": {number: sorted(timeline.cohorts.get(number, ())) for number in range(1, rounds + 1)},
            "blocks": {number: timeline.alphas.get(number, {}) for number in range(1, rounds + 1)},
            "aggregated clients": {each.number: sorted(each.aggregated) for each in timeline.rounds},
        }

    one, other = facts(predicted), facts(measured)
    found = {kind: [n for n in range(1, rounds + 1) if one[kind].get(n) != other[kind].get(n)] for kind in one}
    differences = {kind: numbers for kind, numbers in found.items() if numbers}
    return Decisions(differences, rounds, min((each[0] for each in differences.values()), default=rounds + 1) - 1)


@dataclass
class SeedAgainst:
    """One method with one seed in both runs."""

    decisions: Decisions  # how far both made the same decisions; what follows is about these rounds only
    emulation: Emulation | None
    # by direction those of clients' transfers, predicted and measured, and all that the measured log has; of a
    # resumed emulation those after its resumption
    bytes: dict[str, tuple[int, int, int]]
    # the seconds of each round (predicted are, where there is a band, those in its middle), of the exposed and hidden
    # transfers on its critical path, and of each phase of each job that both runs have
    gaps: list[Gap] = field(default_factory=list)
    # the seconds at the end of each round in both runs; predicted as those of rounds
    ends: list[tuple[float, float]] = field(default_factory=list)
    unmatched: int = 0  # the number of jobs and phases that one run alone has
    other_critical: int = 0  # the number of rounds that another client closed


@dataclass(frozen=True)
class Against:
    """A run and its prediction."""

    predicted: RunResult
    measured: RunResult
    seeds: dict[str, dict[int, SeedAgainst]]  # by method, the comparison of each seed that both runs have
    targets: dict[str, Targets]  # by method; none after --no-train
    other: list[str]  # sentences about what only one run has, and options of the scenario that differ
    # of the predicted rounds, over draws of the shares in queues; where there are some, their middles are the
    # predicted seconds of rounds and targets
    bands: Bands

    @property
    def every(self) -> list[tuple[str, int, SeedAgainst]]:
        """Each method and seed with its comparison."""
        return [(label, seed, each) for label, seeds in self.seeds.items() for seed, each in seeds.items()]

    def pairs(self, method: str, what: str) -> list[Gap]:
        """All seeds' pairs: ``round``, ``exposed transfers``, ``hidden transfers``, or the name of a phase."""
        return [pair for seed in self.seeds[method].values() for pair in seed.gaps if pair.what == what]

    def compared_rounds(self, method: str) -> int:
        """The number of rounds that are compared with every seed."""
        return min(seed.decisions.same for seed in self.seeds[method].values())

    def seconds_after(self, method: str, rounds: int) -> tuple[float, float]:
        """The mean seconds of the first rounds over the seeds, predicted and measured."""
        ends = [seed.ends[rounds - 1] for seed in self.seeds[method].values()]
        return fmean(end for end, _ in ends), fmean(end for _, end in ends)

    def orders(self) -> list[Order]:
        """The order of the methods by the seconds to each target, and by those of the rounds that all can compare."""
        dimension = self.measured.metric.dimension
        seconds: dict[str, dict[str, tuple[float, float]]] = {}
        for value in dict.fromkeys(value for each in self.targets.values() for value in each):
            reached = {method: each[value] for method, each in self.targets.items() if value in each}
            seconds[f"to {limit(value, dimension)}"] = reached
        counts = {method: count for method in self.seeds if (count := self.compared_rounds(method))}
        rounds = min(counts.values(), default=0)
        figure = "the first round" if rounds == 1 else f"the first {rounds} rounds"
        seconds[figure] = {method: self.seconds_after(method, rounds) for method in counts}
        pairs = [(figure, [{k: v[of] for k, v in found.items()} for of in (0, 1)]) for figure, found in seconds.items()]
        return [order for figure, both in pairs if (order := order_of(figure, *both)).pairs]


def compare_runs(measured: RunResult, predicted: RunResult) -> Against:
    """Compare a run with its prediction."""
    file = str(predicted.given)
    if measured.name != predicted.name:
        raise UserError(f"expected a run of the scenario '{measured.name}', found one of '{predicted.name}'", file=file)
    trained = measured.trained and predicted.trained
    bands = read_bands(predicted)
    seeds: dict[str, dict[int, SeedAgainst]] = {}
    targets: dict[str, Targets] = {}
    for label, results in measured.results.items():
        other = {result.seed: result for result in predicted.results.get(label, ())}
        both = {result.seed: (other[result.seed], result) for result in results if result.seed in other}
        if both:
            seeds[label] = {seed: _compared(measured, predicted, label, seed, bands) for seed in both}
            targets[label] = _targets(label, list(both.values()), bands) if trained else {}
    if not seeds:
        raise UserError(f"expected a method and seed that {measured.given} has, too; found none", file=file)
    sentences = []
    for run in (measured, predicted):
        own = [(label, each.seed) for label, results in run.results.items() for each in results]
        if alone := [f"{label} with seed {seed}" for label, seed in own if seed not in seeds.get(label, {})]:
            sentences.append(f"Only {run.given} has {', '.join(alone)}.")
    if paths := differing([predicted.scenario, measured.scenario]):
        sentences.append(f"The scenarios differ in {', '.join(paths)}.")
    return Against(predicted, measured, seeds, targets, sentences, bands)


def _compared(measured: RunResult, predicted: RunResult, label: str, seed: int, bands: Bands) -> SeedAgainst:
    planned, real = (read_timeline(run.paths.of(label, seed).folder) for run in (predicted, measured))
    decisions = compare_decisions(planned, real)
    moved = [_bytes(*each) for each in ((planned, decisions.same), (real, decisions.same), (real, math.inf))]
    sides: dict[str, tuple[int, int, int]] = dict(zip(("down", "up"), zip(*moved, strict=True), strict=True))
    found = SeedAgainst(decisions, read_emulation(measured.of(label, seed).emulation), sides)
    for one, other in list(zip(planned.rounds, real.rounds, strict=False))[: decisions.same]:
        place = Place(label, seed, one.number)
        own = Gap(place, "round", one.ended - one.began, other.ended - other.began)
        band = bands.of(own)
        found.gaps.append(own if band is None else own._replace(predicted=band.middle))
        found.gaps.append(Gap(place, "exposed transfers", one.exposed, other.exposed))
        found.gaps.append(Gap(place, "hidden transfers", one.hidden, other.hidden))
        found.ends.append((bands.ends.get((label, seed, one.number), one.ended), other.ended))
        found.other_critical += one.critical != other.critical
    common_rounds = measured.option("protocol.kind") != "asynchronous"
    jobs, others = (jobs_of(timeline, common_rounds=common_rounds) for timeline in (planned, real))
    for key in dict.fromkeys([*jobs, *others]):
        pair = jobs.get(key), others.get(key)
        if not any(job is not None and job.round <= decisions.same for job in pair):
            continue
        if pair[0] is None or pair[1] is None or pair[0].round != pair[1].round:
            found.unmatched += 1
            continue
        place = Place(label, seed, pair[0].round, key[0])
        found.unmatched += len(pair[0].seconds.keys() ^ pair[1].seconds.keys())
        for phase in PHASES:
            if phase in pair[0].seconds and phase in pair[1].seconds:
                found.gaps.append(Gap(place, phase, pair[0].seconds[phase], pair[1].seconds[phase]))
    return found


def _bytes(timeline: Timeline, rounds: float) -> tuple[int, int]:
    """The bytes of clients' transfers down and up for the jobs of the first rounds; one between peers is both."""
    moved = [each for each in timeline.transfers if each.item != "relay" and each.round <= rounds]
    down = sum(each.bytes for each in moved if not each.up or each.flow in timeline.receptions)
    return down, sum(each.bytes for each in moved if each.up)


def _targets(label: str, results: list[tuple[SeedResult, SeedResult]], bands: Bands) -> Targets:
    values = dict.fromkeys(target.value for pair in results for result in pair for target in result.targets)
    middles = {(seed, round): ended for (method, seed, round), ended in bands.ends.items() if method == label}
    found = {}
    for value in values:
        planned = [_seconds_to(value, each, middles) for each, _ in results]
        found[value] = fmean(planned), fmean(_seconds_to(value, each, {}) for _, each in results)
    return found


def _seconds_to(value: float, result: SeedResult, middles: Mapping[tuple[int, int], float]) -> float:
    """Seconds to a target; those in the middle of the draws, by seed and round, where they are known."""
    for each in result.targets:
        if each.value == value and each.reached and each.seconds is not None:
            return each.seconds if each.rounds is None else middles.get((result.seed, each.rounds), each.seconds)
    return math.inf
