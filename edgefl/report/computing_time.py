"""The real seconds that a run took to compute, from the times at which its files were written."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

from edgefl.report.run_record import RunRecord

_RIGHT_AWAY = 0.01
"""Files that are closer together, in seconds, were copied."""


def seconds_of_a_seed(run: RunRecord) -> float | None:
    """The real seconds that all methods of a run take with one more seed; ``None`` if the files do not show it.

    Runs follow one another, seed by seed, and the last file of each is its table of rounds. So the time between two
    tables is that of a run; the median over the seeds excludes interruptions. The files of a copied directory were
    written in another order, or all at once.
    """
    files = [run.paths.of(label, seed).rounds for seed, label in _in_order(run)]
    try:
        written = [file.stat().st_mtime for file in files]
    except OSError:
        return None
    taken: dict[str, list[float]] = {label: [] for label in run.labels}
    for (earlier, later), (_, label) in zip(pairwise(written), _in_order(run)[1:], strict=True):
        if later - earlier < _RIGHT_AWAY:
            return None
        taken[label].append(later - earlier)
    return sum(map(median, taken.values())) if all(taken.values()) else None


def _in_order(run: RunRecord) -> list[tuple[int, str]]:
    """Seed and label of each run, in the order of execution."""
    return [
        (results[number].seed, label)
        for number in range(max(map(len, run.results.values())))
        for label, results in run.results.items()
        if number < len(results)
    ]
