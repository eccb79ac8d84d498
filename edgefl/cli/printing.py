r"""How commands print, show the progress of runs, and end.

Control characters in texts are shown as escapes (``\x1b``). Tables are as wide as the terminal; in a file or pipe they
have ``COLUMNS`` columns, or 100.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any, TextIO

import typer

from edgefl.errors import EdgeflError
from edgefl.record.events import Listener
from edgefl.record.metric import Metric
from edgefl.record.rounds import RoundRow
from edgefl.record.summary import SeedResult
from edgefl.report.quantities import quantity, unit_for
from edgefl.wording import counted, escape

if TYPE_CHECKING:
    from edgefl.report.table import Table

WIDTH = 100
"""Columns of a table in a file or a pipe."""


class Stopped(EdgeflError):  # noqa: N818  (nothing went wrong)
    """Ctrl-C or SIGTERM ended the command; the message says how to continue."""


def say(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print text, which may come from received files, with control characters shown as escapes."""
    try:
        typer.echo(escape(str(text), keep="\n\t"), err=err, nl=nl)
    except BrokenPipeError:
        _reader_gone()


def flush() -> None:
    """Write what standard output still holds."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _reader_gone()


def _reader_gone() -> None:
    """Write to nothing: the reader of standard output (``| head``) has closed the pipe."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say_json(data: Any) -> None:
    """Print plain data as JSON."""
    say(json.dumps(data, indent=2))


def quiet(as_json: bool) -> AbstractContextManager[object]:
    """Redirect printing by models and parts of methods to standard error if standard output is JSON."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


def width() -> int:
    """Columns of what is printed: ``COLUMNS``, those of the terminal, or 100."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns):
        return int(columns)
    return shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH


def show(table: Table) -> None:
    """Print a table as wide as the terminal."""
    say(table.text(width()))


def print_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    notes: Sequence[str] = (),
    words: Sequence[int] = (0,),
) -> None:
    """Print a table with a title above and notes below; columns of ``words`` are aligned to the left."""
    from edgefl.report.table import Column, Table

    cells = [list(row) for row in rows]
    columns = [Column(head, [row[number] for row in cells], text=number in words) for number, head in enumerate(heads)]
    show(Table(columns, notes, [title] if title else []))


LIVE_SECONDS = 0.1
"""The shortest interval between two changes of the line on a terminal."""

QUIET_SECONDS = 10.0
"""The shortest interval between two plain lines about one run."""


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
        self._live = stream.isatty()

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

    def _line(self, *, ended: bool = False) -> str:
        done = (self._run - 1) * self._most + (self._most if ended else self._round)
        left = (self._clock() - self._began) * (self._runs * self._most - done) / max(1, done)
        unit = unit_for([max(1.0, left)], "seconds")
        best = "–" if math.isnan(self._best) else quantity(self._best, self._metric.dimension)
        count, most = str(self._run).rjust(len(str(self._runs))), str(self._round).rjust(len(str(self._most)))
        parts = [f"run {count}/{self._runs}", self._name.ljust(self._widest), f"round {most}/{self._most}"]
        return "  ".join([*parts, f"best {self._metric.word} {best}", f"{left / unit.scale:.0f} {unit.symbol} left"])

    def _print(self, text: str, *, ends: bool = True) -> None:
        text = escape(text)
        if self._live:
            text = f"\r\x1b[K{text if ends else text[: width() - 1]}"
        elif not text:
            return
        self._stream.write(text + "\n" * ends)
        self._stream.flush()
