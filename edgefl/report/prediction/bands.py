"""The seconds of each round over draws of the shares in queues (``queue: fifo``): their middle and their band.

One draw is one guess, so the prediction is the median over the draws. The lowest and the highest of n independent draws
contain a further one with probability (n - 1) / (n + 1): with the run's own draw and its others, 19 in total, that is
nine in ten.
"""

from collections import defaultdict
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from edgefl.errors import UserError
from edgefl.record.sensitivity import OWN, Condition, read_retimed
from edgefl.report.prediction.gaps import Gap
from edgefl.report.run_result import RunResult

TOLERANCE = 0.01
"""By this share a round may leave its band: emulated rounds with fair queues, which draw nothing, differ as much."""


class Band(NamedTuple):
    """The lowest and the highest seconds of a round over the draws, and their median."""

    low: float
    high: float
    middle: float

    def contains(self, seconds: float) -> bool:
        """Whether a measured round is in the band, within the tolerance."""
        return self.low * (1.0 - TOLERANCE) <= seconds <= self.high * (1.0 + TOLERANCE)


class Bands(NamedTuple):
    """The bands of a prediction by method, seed and round, and the medians of the seconds at the end of each round.

    ``draws`` counts the prediction's own; ``missing`` are sentences about what has no band.
    """

    draws: int
    rounds: dict[tuple[str, int, int], Band]
    ends: dict[tuple[str, int, int], float]
    missing: list[str]

    def of(self, gap: Gap) -> Band | None:
        """The band of a round; ``None`` where there is none."""
        return self.rounds.get((gap.place.method, gap.place.seed, gap.place.round))


def has_one_queue(run: RunResult) -> bool:
    """Whether transfers of a run share one queue (``queue: fifo``)."""
    transport = (run.scenario.get("network") or {}).get("transport") or {}
    return bool(transport.get("queue") == "fifo")


def read_bands(predicted: RunResult) -> Bands:
    """The bands of a run, from its ``sensitivity.parquet``; none with fair queues."""
    if not has_one_queue(predicted):
        return Bands(0, {}, {}, [])
    none = "No band over draws of the shares in queues"
    hint = f"edgefl replay {predicted.given} --sensitivity computes it, if arrival times do not decide what is trained"
    if not predicted.paths.sensitivity.is_file():
        why = hint if predicted.trained else "nothing was trained, and this run is no prediction of edgefl emulate"
        return Bands(0, {}, {}, [f"{none}: {why}."])
    try:
        found = read_retimed(predicted.path)
    except UserError as error:
        return Bands(0, {}, {}, [f"{none}: {error}."])
    ends: defaultdict[tuple[str, int, int], list[float]] = defaultdict(lambda: [0.0])
    for row in found.rows.to_pylist():
        if Condition(row["devices"], row["bandwidth"]) == OWN:
            ends[row["label"], row["seed"], row["draw"]].append(row["seconds"])
    seconds: defaultdict[tuple[str, int, int], list[float]] = defaultdict(list)
    moments: defaultdict[tuple[str, int, int], list[float]] = defaultdict(list)
    for (label, seed, _), each in ends.items():
        for number, (began, ended) in enumerate(pairwise(each), 1):
            seconds[label, seed, number].append(ended - began)
            moments[label, seed, number].append(ended)
    draws = len({draw for _, _, draw in ends})
    missing = [f"{label}: no band over draws of the shares: {why}." for label, why in found.refused.items()]
    if draws < 2:
        return Bands(0, {}, {}, missing or [f"{none}: {hint}."])
    bands = {place: Band(min(each), max(each), median(each)) for place, each in seconds.items()}
    return Bands(draws, bands, {place: median(each) for place, each in moments.items()}, missing)
