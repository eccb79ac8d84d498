"""The progress of a run: one line that changes on a terminal and in a notebook, a few plain lines otherwise."""

import io
import math
import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from edgefl.record.events import Listener
from edgefl.record.metric import Metric
from edgefl.record.rounds import RoundRow
from edgefl.record.summary import SeedResult
from edgefl.report.quantities import quantity, unit_for
from edgefl.wording import counted, escape

LIVE_SECONDS = 0.1
"""The shortest interval between two changes of the line on a terminal."""

QUIET_SECONDS = 10.0
"""The shortest interval between two plain lines about one run."""


Said = bool | Callable[[str], None]
"""True: progress is shown where a line can change; a function is called with plain lines."""


def live_stream() -> TextIO | None:
    """Where a line can change: standard error of a terminal, standard output of a notebook; None elsewhere."""
    if type(sys.stdout).__module__.startswith("ipykernel"):
        return sys.stdout
    return sys.stderr if sys.stderr.isatty() else None


class _Calls(io.StringIO):
    """A stream whose lines are arguments of calls."""

    def __init__(self, call: Callable[[str], None]) -> None:
        super().__init__()
        self._call = call

    def write(self, text: str) -> int:
        self._call(text.rstrip("\n"))
        return len(text)


class Progress(Listener):
    """``run 3/15 fedadc, seed 2 round 25/60 best accuracy 95.7 % 4 min left``.

    ``metric`` returns the metric of the runs, and is called when they begin; ``clock`` returns wall-clock seconds.
    """

    def __init__(
        self, metric: Callable[[], Metric], stream: TextIO, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._metric_of_runs = metric
        self._stream = stream
        self._clock = clock
        self._terminal = stream.isatty()
        self._live, self._shown = self._terminal or stream is live_stream(), 0

    @classmethod
    def said(cls, progress: Said, metric: Callable[[], Metric]) -> list["Progress"]:
        """What shows the progress that was asked for; nothing where no line can change."""
        stream = _Calls(progress) if callable(progress) else live_stream() if progress else None
        return [] if stream is None else [cls(metric, stream)]

    def began(self, runs: list[tuple[str, int]], rounds: int) -> None:
        self._metric = self._metric_of_runs()
        self._runs, self._most, self._run = len(runs), rounds, 0
        self._widest = max(len(f"{label}, seed {seed}") for label, seed in runs)
        self._began = self._last = self._clock()
        if not self._live:
            self._print(f"{counted(len(runs), 'run')} of at most {counted(rounds, 'round')}")

    def advised(self, advice: str) -> None:
        self._print(advice)

    def run_began(self, label: str, seed: int) -> None:
        self._run += 1
        self._name, self._round, self._best = f"{label}, seed {seed}", 0, math.nan

    def round_ended(self, row: RoundRow) -> None:
        self._round = row.round
        if not math.isnan(row.metric):
            known = [row.metric] if math.isnan(self._best) else [row.metric, self._best]
            self._best = self._metric.best(*known)
        now = self._clock()
        if now - self._last >= (LIVE_SECONDS if self._live else QUIET_SECONDS):
            self._last = now
            self._print(self._line(), ends=not self._live)

    def run_ended(self, result: SeedResult) -> None:
        self._last = self._clock()
        from edgefl.report.rows import end

        self._print(f"{self._line(ended=True)}  ended by {end(result.stop.reason)}")

    def clear(self) -> None:
        """Remove the line."""
        self._print("", ends=False)

    def left(self, *, ended: bool = False) -> float:
        """Seconds until the end of all runs, by the rounds so far; ``ended``: the present run is complete."""
        done = (self._run - 1) * self._most + (self._most if ended else self._round)
        return (self._clock() - self._began) * (self._runs * self._most - done) / max(1, done)

    def _line(self, *, ended: bool = False) -> str:
        left = self.left(ended=ended)
        unit = unit_for([max(1.0, left)], "seconds")
        best = "–" if math.isnan(self._best) else quantity(self._best, self._metric.dimension)
        count, most = str(self._run).rjust(len(str(self._runs))), str(self._round).rjust(len(str(self._most)))
        parts = [f"run {count}/{self._runs}", self._name.ljust(self._widest), f"round {most}/{self._most}"]
        return "  ".join([*parts, f"best {self._metric.word} {best}", f"{left / unit.scale:.0f} {unit.symbol} left"])

    def _print(self, text: str, *, ends: bool = True) -> None:
        text = escape(text)
        if self._live:
            shown = text if ends else text[: shutil.get_terminal_size((100, 24)).columns - 1]
            clear = "\r\x1b[K" if self._terminal else f"\r{' ' * self._shown}\r"  # notebooks know no escapes
            text, self._shown = f"{clear}{shown}", 0 if ends else len(shown)
        elif not text:
            return
        self._stream.write(text + "\n" * ends)
        self._stream.flush()
