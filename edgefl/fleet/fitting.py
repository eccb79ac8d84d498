"""Fit the figures of a roofline to measured training steps and chains of layers, and compute its errors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefl.fleet.roofline import Operator, beside, small_images
from edgefl.operator_kinds import FAMILIES, KINDS, kind_and_families

Vector = NDArray[np.float64]

Step = tuple[Sequence[Operator], float]
"""The operators of a step (or chain of layers), and its measured seconds."""

Figures = tuple[float, float, float]
"""FLOP/s, bytes/s and seconds of a launch."""

STEP_WEIGHT = 3.0
"""Weight of a whole step's error relative to a chain's: steps are what is to be predicted."""

CLOSENESS = 0.3
"""Penalty for each factor of e between a kind's figure and the general figure, in units of a chain's error: with 0.6
and no steps of large batches, steps on an x86 core that were not fitted were missed by 15 % instead of 7 %."""

ARITHMETIC = ("convolution", "attention", "recurrent")
ARITHMETIC_BANDWIDTH = 2.0
"""Kinds that are limited by arithmetic, convolutions by less of it for small images, and the same penalty for their
bytes/s. With 0.3 and no small images, low bytes/s stood for it, and steps that were not fitted were missed by 11 %
instead of 7 % on one x86 core, and by 14 % instead of 8 % on two."""


@dataclass(frozen=True)
class Rates:
    """The figures of a roofline."""

    flops_per_second: float
    bytes_per_second: float
    operator_overhead: float  # seconds of a launched operator
    step_overhead: float  # seconds of a step
    # FLOP/s, bytes/s and overhead of the kinds of operators that have separate figures
    kinds: Mapping[str, Figures] = field(default_factory=dict)
    # group_overhead, half_rate_pixels: as in a profile
    group_overhead: float = 0.0
    half_rate_pixels: float = 0.0
    cuda: bool = False  # kernels run beside launches

    @property
    def general(self) -> Figures:
        """The figures of all other kinds of operators."""
        return self.flops_per_second, self.bytes_per_second, self.operator_overhead

    def seconds(self, operators: Sequence[Operator]) -> float:
        kernels = launches = 0.0
        for each in operators:
            kind = getattr(each, "kind", "")
            own = (self.kinds[name] for name in kind_and_families(kind) if name in self.kinds)
            rate, bandwidth, launch = next(own, self.general)
            pixels = getattr(each, "pixels", 0)
            flops = each.flops * (1 + self.half_rate_pixels / pixels) if pixels else each.flops
            launch += self.group_overhead * getattr(each, "groups", 0)
            kernels += each.count * max(flops / rate, each.bytes / bandwidth)
            launches += each.count * launch
        return self.step_overhead + (beside(kernels, launches) if self.cuda else kernels + launches)


def fit_rates(steps: Sequence[Step], chains: Sequence[Step]) -> Rates:
    """The rates that predict these steps best, by least squares of the logarithm of predicted over measured seconds.

    Thus a step of a microsecond counts as much as a step of a second. Each kind of operator gets separate figures,
    which are kept near the general ones unless the measurements require otherwise. A chain (forward alone, or forward
    and backward) runs the same few operators on memory that it has just used, while a step writes memory that is not in
    the caches. So chains have factors and a fixed time of their own, fitted and then dropped.
    """
    return _fit_kinds(_fit_general(steps), steps, chains)


def relative_errors(rates: Rates, steps: Sequence[Step]) -> list[float]:
    """Predicted divided by measured seconds of each step, minus 1."""
    return [rates.seconds(operators) / seconds - 1 for operators, seconds in steps]


def _best(misses: Callable[[Vector], Vector], starts: Iterable[Vector], **options: Any) -> Vector:
    """The least squares that a search from one of these starts reaches."""
    from scipy.optimize import least_squares

    fits = [least_squares(misses, start, **options) for start in starts]
    return np.asarray(min(fits, key=lambda fit: float(fit.cost)).x)


def _fit_general(steps: Sequence[Step]) -> Rates:
    """The sum of maxima has several local optima, so the search starts from nine points."""
    arrays = [_arrays(operators) for operators, _ in steps]
    measured = np.log([seconds for _, seconds in steps])

    def misses(logarithms: Vector) -> Vector:
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
    usual = np.max(work / seconds), np.max(traffic / seconds), 0.3 * np.min(seconds / launches), 0.05 * seconds.min()
    starts = [
        np.clip(np.log(np.maximum(np.multiply((*factors, 1.0, 1.0), usual), 1e-12)), bounds[0] + 1e-6, bounds[1] - 1e-6)
        for factors in product((0.3, 1.0, 3.0), repeat=2)
    ]
    return Rates(*np.exp(_best(misses, starts, bounds=bounds)).tolist())


def _fit_kinds(start: Rates, steps: Sequence[Step], chains: Sequence[Step]) -> Rates:
    runs = [*steps, *chains]
    operators = [list(each) for each, _ in runs]
    flat = [one for each in operators for one in each]
    kind_of = [getattr(one, "kind", "") for one in flat]
    names = sorted({*kind_of})
    kind = np.searchsorted(names, kind_of)
    flops, moved, count = _arrays(flat)
    small = small_images(flat, 1.0) - 1
    lengths = [len(each) for each in operators]
    first = np.cumsum([0, *lengths[:-1]])
    is_chain = np.arange(len(runs)) >= len(steps)
    of_chain = np.repeat(is_chain, lengths)
    # A chain with a backward pass includes the start of the autograd engine; a forward chain does not.
    differentiated = np.array([any("backward" in getattr(one, "kind", "") for one in each) for each in operators])
    backward = np.repeat(differentiated, lengths)
    measured = np.log([seconds for _, seconds in runs])
    weight = np.where(is_chain, 1.0, STEP_WEIGHT)
    close = np.full((3, len(names)), CLOSENESS)
    close[1, [name.startswith(ARITHMETIC) and "depthwise" not in name for name in names]] = ARITHMETIC_BANDWIDTH
    kinds_end = 5 + close.size

    def parted(x: Vector) -> tuple[Vector, Vector, Vector]:
        return x[:5], x[5:kinds_end].reshape(close.shape), x[kinds_end:]

    def misses(x: Vector) -> Vector:
        general, own, chain = parted(x)
        rate, bandwidth, launch = (general[row] + own[row][kind] for row in range(3))
        arithmetic = flops * (1 + np.exp(general[4]) * small) * np.exp(-rate - chain[0] * of_chain)
        traffic = moved * np.exp(-bandwidth - np.where(backward, chain[1], chain[2]) * of_chain)
        each = (np.maximum(arithmetic, traffic) + np.exp(launch)) * count
        fixed = np.exp(np.where(is_chain, np.where(differentiated, chain[3], chain[4]), general[3]))
        predicted = np.log(np.add.reduceat(each, first) + fixed)
        kept = [(close * own).ravel(), CLOSENESS * chain[:3], UNKNOWN * (general[4:] - np.log(FEW_PIXELS))]
        return np.concatenate([weight * (predicted - measured), *kept])

    figures = (start.flops_per_second, start.bytes_per_second, start.operator_overhead, start.step_overhead)
    # The optimum depends on how much faster chains move bytes than steps, so the search starts from several values.
    middle = np.concatenate([np.log([*figures, FEW_PIXELS]), np.zeros(close.size + 3), np.log([2e-5, 1e-6])])
    reach = np.concatenate([np.full(5, 9.0), np.full(close.size, 5.0), [3.0, 3.0, 3.0], [9.0, 9.0]])
    reached = _reached(runs, names, figures)
    starts = []
    for factor in (0.0, 0.6, 1.2):
        for own in (np.zeros_like(reached), reached):
            guess = middle.copy()
            guess[5:kinds_end] = own.ravel()
            guess[kinds_end + 1 : kinds_end + 3] = factor, 2 * factor
            guess[1] -= factor
            starts.append(guess)
    general, own, _ = parted(_best(misses, starts, bounds=(middle - reach, middle + reach), max_nfev=200))
    by_kind = np.exp(general[:3, None] + own)
    figures_of = {name: tuple(figures) for name, figures in zip(names, by_kind.T.tolist(), strict=True) if name}
    rate, bandwidth, launch, fixed, half = np.exp(general).tolist()
    return Rates(rate, bandwidth, launch, fixed, figures_of, half_rate_pixels=half)


def _reached(runs: Sequence[Step], names: Sequence[str], general: Sequence[float]) -> Vector:
    """Logarithms ``[3, kinds]`` of kinds' highest rates over the general ones, where the search starts."""
    best = np.zeros((2, len(names)))
    for operators, seconds in runs:
        totals = np.zeros_like(best)
        for each in operators:
            totals[:, names.index(getattr(each, "kind", ""))] += each.count * each.flops, each.count * each.bytes
        best = np.maximum(best, totals / seconds)
    distance = np.log(np.maximum(best, 1e-300)) - np.log(general[:2])[:, None]
    distance = np.where(best > 0, np.clip(distance, -4.9, 4.9), 0.0)
    return np.vstack([distance, np.zeros(len(names))])


def _arrays(operators: Sequence[Operator]) -> Vector:
    return np.array([(each.flops, each.bytes, each.count) for each in operators], np.float64).reshape(-1, 3).T


FAMILY_CLOSENESS = 0.25
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

LOOPS, FEW_PIXELS = 3e-4, 10.0
UNKNOWN = 0.05
"""Usual seconds of a group and pixels at half rate, and the penalty for each factor of e away from them: steps of small
images and of grouped convolutions determine both."""

LEAST_STEPS = 4

_STARTS = ((1e10, 2e9), (3e10, 1e9), (1e12, 1e11))
"""FLOP/s and bytes/s from which the search starts: the sum of maxima has several local optima."""


@dataclass(frozen=True)
class _Work:
    """The operators of all steps, those that are equal in a step merged."""

    names: tuple[str, ...]
    step: NDArray[np.int64]
    family: NDArray[np.int64]
    flops: Vector
    bytes: Vector
    groups: Vector
    small: Vector
    count: Vector

    @staticmethod
    def of(steps: Sequence[Step]) -> _Work:
        counts: defaultdict[tuple[int, str, float, float, int, int], float] = defaultdict(int)
        for index, (operators, _) in enumerate(steps):
            for each in operators:
                kind = getattr(each, "kind", "")
                fitted = kind if kind in ALONE else FAMILIES.get(kind, kind)
                loops = getattr(each, "groups", 0), getattr(each, "pixels", 0)
                counts[index, fitted, each.flops, each.bytes, *loops] += each.count
        names = tuple(sorted({name for _, name, *_ in counts}))
        step, family, flops, moved, groups, pixels = zip(*counts, strict=True)
        return _Work(
            names=names,
            step=np.array(step),
            family=np.searchsorted(names, family),
            flops=np.array(flops, np.float64),
            bytes=np.array(moved, np.float64),
            groups=np.array(groups, np.float64),
            small=np.array([1 / each if each else 0.0 for each in pixels]),
            count=np.array(list(counts.values()), np.float64),
        )

    def seconds(self, logarithms: Vector) -> Vector:
        own = logarithms[6:].reshape(2, len(self.names))
        rate, bandwidth = (logarithms[row] + own[row][self.family] for row in range(2))
        group, half = np.exp(logarithms[4:6])
        flops = self.flops * (1 + half * self.small)
        each = np.maximum(flops * np.exp(-rate), self.bytes * np.exp(-bandwidth)) + np.exp(logarithms[2])
        each += group * self.groups
        return np.asarray(np.bincount(self.step, each * self.count) + np.exp(logarithms[3]), np.float64)

    def reached(self, seconds: Vector, general: tuple[float, float]) -> Vector:
        """Each family's highest FLOP/s and bytes/s over a whole step, as distances from the general figures."""
        totals = np.zeros((2, seconds.size, len(self.names)))
        np.add.at(totals[0], (self.step, self.family), self.flops * self.count)
        np.add.at(totals[1], (self.step, self.family), self.bytes * self.count)
        best = np.maximum((totals / seconds[:, None]).max(axis=1), 1.0)
        return np.asarray(np.clip(np.log(best) - np.log(general)[:, None], -5.0, 3.0), np.float64)


def fit_families(steps: Sequence[Step], *, operator_overhead: float, step_overhead: float) -> Rates:
    """The rates by family that predict these steps best, by least squares of the logarithm of predicted over measured.

    A table of step times has a few dozen numbers, too few for three figures of each kind of operator. So kinds of one
    family have the same figures (``edgefl.operator_kinds.FAMILIES``), which stay near the general ones unless the times
    require otherwise. Long steps do not determine overheads, so these are near the expected seconds given.
    """
    work = _Work.of(steps)
    seconds = np.array([each for _, each in steps], np.float64)
    measured = np.log(seconds)
    expected = np.log(np.maximum((operator_overhead, step_overhead), LEAST_OVERHEAD))
    loops = np.log((LOOPS, FEW_PIXELS))
    families = len(work.names)

    def misses(x: Vector) -> Vector:
        far = x[6:]
        balance = [UNBALANCED * (x[0] - x[1] - np.log(BALANCE)), *(UNKNOWN * (x[4:6] - loops))]
        kept = FAMILY_CLOSENESS * np.sign(far) * np.sqrt(np.log1p(far**2))
        return np.concatenate([np.log(work.seconds(x)) - measured, kept, OVERHEAD * (x[2:4] - expected), balance])

    starts = []
    for general in _STARTS:
        reached = work.reached(seconds, general)
        guesses = (np.zeros((2, families)), reached, np.minimum(reached, 0.0))
        starts += [np.concatenate([np.log(general), expected, loops, own.ravel()]) for own in guesses]
    best = _best(misses, starts, max_nfev=200)
    rate, bandwidth, launch, fixed, group, half = np.exp(best[:6]).tolist()
    own = np.exp(best[:2, None] + best[6:].reshape(2, families)).T.tolist()
    kinds = {name: (*figures, launch) for name, figures in zip(work.names, own, strict=True)}
    looping = group if work.groups.any() else 0.0, half if work.small.any() else 0.0
    return Rates(rate, bandwidth, launch, fixed, kinds, *looping)


CHANNELS = {"thin": 3.0, "narrow": 20.0, "medium": 64.0, "wide": 256.0, "grouped": 8.0, "depthwise": 1.0}
"""Usual channels of a group of a convolution, by its width: of the smaller side."""

LIGHT = ("elementwise", "move", "reduction")
"""Kinds of operators that PyTorch's engine launches itself, without a module's call or a library's set-up."""

KEPT = np.array([0.3, 0.3, 1.0, 0.1, 0.1, 0.1, 0.3])
"""Penalty for each factor of e between a GPU's figure and the usual one: little for channels and launches."""


def fit_cuda(
    steps: Sequence[Step], *, peak: float, memory_bandwidth: float, operator_overhead: float, step_overhead: float
) -> Rates:
    """The seven figures of a GPU that predict these steps best, by least squares of the logarithm.

    They are the FLOP/s of products and, with Winograd's transforms, of spatial convolutions, bytes/s, the channels at
    which a convolution reaches half of its rate, seconds of a launch, of a light launch and of a step. The expected
    figures follow from those given, and a few steps hardly move them away.
    """
    measured = np.log([seconds for _, seconds in steps])
    overheads = np.maximum((operator_overhead, step_overhead), LEAST_OVERHEAD)
    usual = np.log([peak / 2, peak, memory_bandwidth, 16.0, overheads[0], 0.1, overheads[1]])

    def misses(x: Vector) -> Vector:
        rates = _cuda_rates(x)
        predicted = np.log([rates.seconds(operators) for operators, _ in steps])
        return np.concatenate([predicted - measured, KEPT * (x - usual)])

    # Steps depend on launches only where these take longer than kernels, so the search also starts from long ones.
    return _cuda_rates(_best(misses, [usual + slow * (np.arange(usual.size) == 4) for slow in (0.0, 1.5, 3.0)]))


def _cuda_rates(logarithms: Vector) -> Rates:
    product, spatial, bandwidth, half, launch, light, fixed = np.exp(logarithms).tolist()
    general = product / (1 + half / CHANNELS["medium"])
    kinds = {"matrix-product": (product, bandwidth, launch)}
    kinds |= dict.fromkeys(LIGHT, (general, bandwidth, light * launch))
    for kind in KINDS:
        if kind.startswith("convolution"):
            width = kind.split("-")[1]
            rate = spatial if "spatial" in kind and width != "thin" else product
            kinds[kind] = rate / (1 + half / CHANNELS[width]), bandwidth, launch
    return Rates(general, bandwidth, launch, fixed, kinds, cuda=True)
