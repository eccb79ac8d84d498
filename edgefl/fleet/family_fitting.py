"""Fit the rates of families of operators to measured times of whole training steps.

A table of step times has a few dozen numbers, too few for three figures of each kind of operator. So kinds of one
family have the same figures (``edgefl.operator_kinds.FAMILIES``), and the figures of a family stay near the
general ones unless the times require otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefl.fleet.fitting import Rates, Step
from edgefl.operator_kinds import FAMILIES

CLOSENESS = 0.25
"""Penalty for the distance x between the logarithms of a family's figure and the general figure, sqrt(ln(1 + x²)), in
units of a step's error. It grows slowly, because single families are a hundred times slower on some devices."""

ALONE = frozenset({"batched-product"})
"""Kinds that are fitted alone although they have a family: small products are far slower than large ones."""

OVERHEAD = 0.3
"""Penalty for each factor of e between a fitted and an expected overhead."""

LEAST_OVERHEAD = 1e-9
"""Expected seconds of an overhead that is given as zero, which has no logarithm."""

BALANCE, UNBALANCED = 20.0, 0.05
"""Usual FLOP for each byte of memory traffic, and the penalty for each factor of e away from it: large enough that a
figure which no step depends on has a usual value."""

LEAST_STEPS = 4
"""The smallest number of steps from which rates are fitted."""

_STARTS = ((1e10, 2e9), (3e10, 1e9), (1e12, 1e11))
"""FLOP/s and bytes/s from which the search starts: the sum of maxima has several local optima."""


@dataclass(frozen=True)
class _Work:
    """The operators of all steps, those that are equal in a step merged."""

    names: tuple[str, ...]
    step: NDArray[np.int64]
    family: NDArray[np.int64]
    flops: NDArray[np.float64]
    bytes: NDArray[np.float64]
    count: NDArray[np.float64]

    @staticmethod
    def of(steps: Sequence[Step]) -> _Work:
        """The work of these steps."""
        counts: defaultdict[tuple[int, str, float, float], float] = defaultdict(int)
        for index, (operators, _) in enumerate(steps):
            for each in operators:
                kind = getattr(each, "kind", "")
                fitted = kind if kind in ALONE else FAMILIES.get(kind, kind)
                counts[index, fitted, each.flops, each.bytes] += each.count
        names = tuple(sorted({name for _, name, _, _ in counts}))
        place = {name: index for index, name in enumerate(names)}
        step, family, flops, moved = zip(*counts, strict=True)
        return _Work(
            names=names,
            step=np.array(step),
            family=np.array([place[name] for name in family]),
            flops=np.array(flops, np.float64),
            bytes=np.array(moved, np.float64),
            count=np.array(list(counts.values()), np.float64),
        )

    def seconds(self, logarithms: NDArray[np.float64]) -> NDArray[np.float64]:
        """The seconds of each step with these general figures and distances of the families from them."""
        rate, bandwidth = (logarithms[row] + self._own(logarithms)[row][self.family] for row in range(2))
        each = np.maximum(self.flops * np.exp(-rate), self.bytes * np.exp(-bandwidth)) + np.exp(logarithms[2])
        return np.asarray(np.bincount(self.step, each * self.count) + np.exp(logarithms[3]), np.float64)

    def _own(self, logarithms: NDArray[np.float64]) -> NDArray[np.float64]:
        return logarithms[4:].reshape(2, len(self.names))

    def reached(self, seconds: NDArray[np.float64], general: tuple[float, float]) -> NDArray[np.float64]:
        """Each family's highest FLOP/s and bytes/s over a whole step, as distances from the general figures."""
        totals = np.zeros((2, seconds.size, len(self.names)))
        np.add.at(totals[0], (self.step, self.family), self.flops * self.count)
        np.add.at(totals[1], (self.step, self.family), self.bytes * self.count)
        best = np.maximum((totals / seconds[:, None]).max(axis=1), 1.0)
        return np.asarray(np.clip(np.log(best) - np.log(general)[:, None], -5.0, 3.0), np.float64)


def fit_families(steps: Sequence[Step], *, operator_overhead: float, step_overhead: float) -> Rates:
    """The rates by family that predict these steps best, by least squares of the logarithm of predicted over measured.

    Args:
        steps: whole training steps, each with its seconds.
        operator_overhead: the expected seconds of a launch. Long steps do not determine it, so the result is near it.
        step_overhead: the expected seconds of overhead of a step; the same holds for it.

    Raises:
        ValueError: there are too few steps, or one has zero seconds.
    """
    from scipy.optimize import OptimizeResult, least_squares

    if len(steps) < LEAST_STEPS or any(not seconds > 0 for _, seconds in steps):
        raise ValueError(f"expected at least {LEAST_STEPS} steps of more than 0 seconds")
    work = _Work.of(steps)
    seconds = np.array([each for _, each in steps], np.float64)
    measured = np.log(seconds)
    expected = np.log(np.maximum((operator_overhead, step_overhead), LEAST_OVERHEAD))
    families = len(work.names)

    def misses(x: NDArray[np.float64]) -> NDArray[np.float64]:
        far = x[4:]
        balance = [UNBALANCED * (x[0] - x[1] - np.log(BALANCE))]
        kept = CLOSENESS * np.sign(far) * np.sqrt(np.log1p(far**2))
        return np.concatenate([np.log(work.seconds(x)) - measured, kept, OVERHEAD * (x[2:4] - expected), balance])

    fits: list[OptimizeResult] = []
    for general in _STARTS:
        reached = work.reached(seconds, general)
        guesses = (np.zeros((2, families)), reached, np.minimum(reached, 0.0))
        starts = [np.concatenate([np.log(general), expected, own.ravel()]) for own in guesses]
        fits += [least_squares(misses, start, max_nfev=200) for start in starts]
    best = min(fits, key=lambda fit: float(fit.cost)).x
    rate, bandwidth, launch, fixed = (float(figure) for figure in np.exp(best[:4]))
    own = np.exp(best[:2, None] + best[4:].reshape(2, families))
    kinds = {
        name: (float(own_rate), float(own_bandwidth), launch)
        for name, own_rate, own_bandwidth in zip(work.names, *own, strict=True)
    }
    return Rates(rate, bandwidth, launch, fixed, kinds)
