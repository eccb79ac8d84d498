"""From measured training steps to the four figures of a roofline, and how well they predict other steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefl.fleet.roofline import Operator

Step = tuple[Sequence[Operator], float]
"""What a step executes, and the seconds that it was measured to take."""


@dataclass(frozen=True)
class Rates:
    """The figures of a roofline.

    Attributes:
        flops_per_second: achievable arithmetic.
        bytes_per_second: achievable memory traffic.
        operator_overhead: seconds of a launched operator.
        step_overhead: seconds of a step.
    """

    flops_per_second: float
    bytes_per_second: float
    operator_overhead: float
    step_overhead: float

    def seconds(self, operators: Sequence[Operator]) -> float:
        """What a step is predicted to take."""
        flops, moved, count = _arrays(operators)
        each = np.maximum(flops / self.flops_per_second, moved / self.bytes_per_second) + self.operator_overhead
        return float((each * count).sum() + self.step_overhead)


def fit_rates(steps: Sequence[Step]) -> Rates:
    """The rates that predict these steps best, by least squares of the logarithm of predicted over measured seconds.

    A step that takes a microsecond so counts as much as one that takes a second. The sum of maxima has several local
    optima, so the search starts from nine places.

    Raises:
        ValueError: fewer than four steps, or one that took no time.
    """
    from scipy.optimize import least_squares

    if len(steps) < 4 or any(not seconds > 0 for _, seconds in steps):
        raise ValueError("expected at least four steps of more than 0 seconds")
    arrays = [_arrays(operators) for operators, _ in steps]
    measured = np.log([seconds for _, seconds in steps])

    def misses(logarithms: NDArray[np.float64]) -> NDArray[np.float64]:
        rate, bandwidth, launch, fixed = np.exp(logarithms)
        predicted = [
            ((np.maximum(flops / rate, moved / bandwidth) + launch) * count).sum() + fixed
            for flops, moved, count in arrays
        ]
        return np.asarray(np.log(predicted) - measured, np.float64)

    bounds = (np.log([1e5, 1e5, 1e-9, 1e-9]), np.log([1e15, 1e14, 0.1, 10.0]))
    seconds = np.exp(measured)
    totals = [((flops * count).sum(), (moved * count).sum(), count.sum()) for flops, moved, count in arrays]
    work, traffic, launches = np.array(totals, np.float64).T
    fits = []
    for part in (0.3, 1.0, 3.0):
        for share in (0.3, 1.0, 3.0):
            start = (
                part * np.max(work / seconds),
                share * np.max(traffic / seconds),
                0.3 * np.min(seconds / launches),
                0.05 * seconds.min(),
            )
            guess = np.clip(np.log(np.maximum(start, 1e-12)), bounds[0] + 1e-6, bounds[1] - 1e-6)
            fits.append(least_squares(misses, guess, bounds=bounds))
    best = min(fits, key=lambda fit: float(fit.cost))
    return Rates(*(float(number) for number in np.exp(best.x)))


def relative_errors(rates: Rates, steps: Sequence[Step]) -> list[float]:
    """Predicted over measured seconds of each step, less 1."""
    return [rates.seconds(operators) / seconds - 1 for operators, seconds in steps]


def _arrays(operators: Sequence[Operator]) -> NDArray[np.float64]:
    return np.array([(each.flops, each.bytes, each.count) for each in operators], np.float64).reshape(-1, 3).T
