"""The progress display of a run, on standard error."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from edgefl.cli.printing import standard_error
from edgefl.record.events import Listener
from edgefl.record.metric import Metric
from edgefl.record.rounds import RoundRow
from edgefl.record.summary import SeedResult
from edgefl.report.quantities import quantity


@contextmanager
def watching(metric: Callable[[], Metric], console: Console | None = None) -> Iterator[Listener]:
    """A progress display: live bars on a terminal, a few plain lines otherwise; always closed at the end.

    Args:
        metric: returns the metric of the runs; called when they begin.
        console: where to print; standard error if not given.
    """
    console = console or standard_error()
    if not console.is_terminal:
        yield Lines(metric, console)
        return
    live = Live(metric, console)
    try:
        yield live
    finally:
        live.close()


class _Display(Listener):
    """The figures of the current run.

    Args:
        metric: returns the metric of the runs; called when they begin.
        console: where to print.
        clock: returns the seconds of the wall clock.
    """

    def __init__(
        self, metric: Callable[[], Metric], console: Console, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._metric_of_runs = metric
        self._console = console
        self._clock = clock
        self._most = 0

    def began(self, runs: list[tuple[str, int]], rounds: int) -> None:
        self._most, self._measured = rounds, self._metric_of_runs()

    def advised(self, advice: str) -> None:
        self._print(advice)

    def run_began(self, label: str, seed: int) -> None:
        self._run = f"{label} seed {seed}"
        self._started = self._clock()
        self._rounds, self._seconds, self._metric = 0, 0.0, f"{self._measured.word} –"

    def round_ended(self, row: RoundRow) -> None:
        self._rounds, self._seconds = row.round, row.seconds
        if not math.isnan(row.metric):
            value = f"{row.metric:6.1%}" if self._measured.share else f"{row.metric:.4g}"
            self._metric = f"{self._measured.word} {value}"

    def _facts(self) -> tuple[str, str, str]:
        """Virtual time, metric and speed."""
        took = self._clock() - self._started
        return (
            f"{quantity(self._seconds, 'seconds')} virtual",
            self._metric,
            f"{self._rounds / took:.1f} rounds/s" if took > 0 else "– rounds/s",
        )

    def _print(self, text: str) -> None:
        self._console.print(escape(text), soft_wrap=True)


class Lines(_Display):
    """Sparse plain lines: the start, the current run at most every ten seconds, and the end of each run."""

    QUIET_SECONDS = 10.0
    """The shortest interval between two lines on unfinished runs."""

    def began(self, runs: list[tuple[str, int]], rounds: int) -> None:
        super().began(runs, rounds)
        self._remaining, self._last = len(runs), self._clock()
        self._print(f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} of at most {rounds} rounds")

    def round_ended(self, row: RoundRow) -> None:
        super().round_ended(row)
        now = self._clock()
        if now - self._last >= self.QUIET_SECONDS:
            self._last = now
            self._print(self._described())

    def run_ended(self, result: SeedResult) -> None:
        self._remaining, self._last = self._remaining - 1, self._clock()
        self._print(f"{self._described()}; ended by {result.stop.reason}; {self._remaining} left")

    def _described(self) -> str:
        return ", ".join((f"{self._run}: round {self._rounds}/{self._most}", *self._facts()))


class Live(_Display):
    """A bar for the current run, a line for each finished one, and a bar for all runs."""

    def __init__(
        self, metric: Callable[[], Metric], console: Console, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        super().__init__(metric, console, clock)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
        )

    def began(self, runs: list[tuple[str, int]], rounds: int) -> None:
        super().began(runs, rounds)
        self._bars.start()
        self._all = self._bars.add_task(f"all {len(runs)} runs", total=len(runs) * rounds, facts="rounds")

    def run_began(self, label: str, seed: int) -> None:
        super().run_began(label, seed)
        self._bar = self._bars.add_task(escape(self._run), total=self._most, facts="")

    def round_ended(self, row: RoundRow) -> None:
        super().round_ended(row)
        self._bars.advance(self._all)
        self._bars.update(self._bar, completed=row.round, facts="  ".join(self._facts()), refresh=False)

    def run_ended(self, result: SeedResult) -> None:
        self._bars.advance(self._all, self._most - self._rounds)
        self._bars.remove_task(self._bar)
        self._print("  ".join((self._run, f"{self._rounds} rounds", *self._facts(), f"ended by {result.stop.reason}")))

    def close(self) -> None:
        """Remove the bars."""
        self._bars.stop()
