"""The few numbers of a transport, fitted to an emulation: the payload's share, the set-up, the spread of one queue."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.report.against.gaps import Gap
from edgefl.report.prediction.comparing import Against, compare_runs
from edgefl.report.run_record import RunRecord
from edgefl.scenario import Scenario, with_overrides

SPREADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.3)
"""Spreads of a queue that are simulated; the fitted one lies between them."""

LEAST_TRANSFERS = 12
"""With fewer, a line through their seconds means nothing."""


class Calibration(NamedTuple):
    """What the transfers of an emulation say about the transport.

    Attributes:
        transfers: how many were used.
        share: with fair queues, the share of the predicted rate that transfers reached; else None.
        setup: with fair queues, the seconds that each took in addition; else None.
        spread: with one queue, the ``queue_spread`` whose transfers differ from equal shares as much as the measured
            ones; else None.
    """

    transfers: int
    share: float | None = None
    setup: float | None = None
    spread: float | None = None

    def __str__(self) -> str:
        """The result in one line.

        >>> print(Calibration(60, spread=0.41))
        60 transfers: as uneven as with network.transport.queue_spread=0.41
        >>> print(Calibration(24, share=0.998, setup=0.0021))
        24 transfers: they reached 99.8 % of the predicted rates, and each took 2.1 ms more
        """
        if self.share is None or self.setup is None:
            return f"{self.transfers} transfers: as uneven as with network.transport.queue_spread={self.spread:.2f}"
        more = f"{1000 * abs(self.setup):.1f} ms {'more' if self.setup >= 0 else 'less'}"
        share = f"{100 * self.share:.1f} % of the predicted rates"
        return f"{self.transfers} transfers: they reached {share}, and each took {more}"


def calibrate(scenario: Scenario, measured: Path, predicted: Path, folder: Path) -> Calibration:
    """Fit a transport to an emulation and its simulation.

    The line through measured over predicted seconds is that of Theil and Sen (the median of the slopes of all pairs),
    which outliers do not move. For one queue, the statistic is the standard deviation of the logarithm of a transfer's
    seconds over its seconds with equal shares; simulations with several spreads give it as a function of the spread.

    Args:
        scenario: the scenario of both runs.
        measured: the run directory of the emulation.
        predicted: that of its simulation.
        folder: an empty folder for further simulations.

    Raises:
        UserError: too few transfers.
    """
    pairs = _transfers(compare_runs(RunRecord(measured), RunRecord(predicted)))
    if len(pairs) < LEAST_TRANSFERS:
        raise UserError(
            f"expected at least {LEAST_TRANSFERS} transfers for a calibration, found {len(pairs)}; use --rounds"
        )
    if scenario.network.transport.queue == "fair":
        slope, intercept, *_ = stats.theilslopes([pair.measured for pair in pairs], [pair.predicted for pair in pairs])
        return Calibration(len(pairs), share=1.0 / float(slope), setup=float(intercept))
    emulated = RunRecord(measured)

    def simulated(*changes: str) -> RunRecord:
        place = folder / "-".join(change.rpartition("=")[2] for change in changes)
        run(with_overrides(scenario, changes), out=place, methods=list(emulated.results), train=False)
        return RunRecord(place)

    equal = simulated("network.transport.queue=fair")

    def unevenness(found: RunRecord) -> float:
        pairs = _transfers(compare_runs(found, equal))
        return float(np.std([np.log(pair.measured / pair.predicted) for pair in pairs]))

    known = [unevenness(simulated(f"network.transport.queue_spread={spread:g}")) for spread in SPREADS]
    rising = np.maximum.accumulate([0.0, *known])
    spread = float(np.interp(unevenness(emulated), rising, [0.0, *SPREADS]))
    return Calibration(len(pairs), spread=spread)


def _transfers(against: Against) -> list[Gap]:
    return [
        pair
        for seeds in against.seeds.values()
        for seed in seeds.values()
        for pair in seed.phases
        if pair.what in ("download", "upload") and pair.predicted > 0.0 and pair.measured > 0.0
    ]
