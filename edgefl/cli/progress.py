"""The progress display of a run, on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from edgefl.cli.console import standard_error

if TYPE_CHECKING:
    from edgefl.experiment.progress import Progress

_Run = tuple[str, int]


@contextmanager
def watching(console: Console | None = None) -> Iterator[Progress]:
    """A progress display: live bars on a terminal, a few plain lines otherwise; always closed at the end."""
    console = console or standard_error()
    progress: Progress = Live(console) if console.is_terminal else Lines(console)
    try:
        yield progress
    finally:
        progress.close()


@dataclass
class _Standing:
    """The progress of a run and its start time: a run begins when the one before it ends."""

    started: float
    rounds: int = 0
    seconds: float = 0.0
    accuracy: float | None = None

    def advance(self, round: int, seconds: float, accuracy: float | None) -> None:
        self.rounds = round
        self.seconds = seconds
        if accuracy is not None:
            self.accuracy = accuracy

    def rounds_per_second(self, now: float) -> str:
        return f"{self.rounds / (now - self.started):.1f} rounds/s" if now > self.started else "– rounds/s"

    @property
    def accuracy_text(self) -> str:
        return "accuracy –" if self.accuracy is None else f"accuracy {self.accuracy:6.1%}"


def virtual_time(seconds: float) -> str:
    """Virtual seconds in readable form.

    >>> virtual_time(7.25), virtual_time(125), virtual_time(7325)
    ('7.2 s', '2 min 05 s', '2 h 02 min')
    """
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


@dataclass
class Lines:
    """Sparse plain lines: the start, every quarter of a long run, and the end of each run."""

    console: Console
    clock: Callable[[], float] = time.perf_counter
    _rounds: int = 0
    _remaining: int = 0
    _standings: dict[_Run, _Standing] = field(default_factory=dict)
    _last: float = 0.0
    _since: float = 0.0

    QUIET_SECONDS = 10.0
    """The shortest interval between two lines on unfinished runs."""

    def begin(self, runs: list[tuple[str, int]], rounds: int) -> None:
        """See :class:`Progress`."""
        self._rounds, self._remaining, self._last = rounds, len(runs), self.clock()
        self._since = self._last
        self._print(f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} of at most {rounds} rounds")

    def round(self, label: str, seed: int, round: int, seconds: float, accuracy: float | None) -> None:
        """See :class:`Progress`."""
        now = self.clock()
        standing = self._standings.setdefault((label, seed), _Standing(started=self._since))
        standing.advance(round, seconds, accuracy)
        if now - self._last >= self.QUIET_SECONDS:
            self._last = now
            self._print(f"{self._described((label, seed), now)}")

    def end(self, label: str, seed: int, reason: str) -> None:
        """See :class:`Progress`."""
        self._remaining -= 1
        now = self.clock()
        self._standings.setdefault((label, seed), _Standing(started=self._since))
        self._print(f"{self._described((label, seed), now)}; ended by {reason}; {self._remaining} to go")
        self._last = self._since = now

    def shared(self, seed: int, trained: int, found: int) -> None:
        """See :class:`Progress`."""
        self._print(f"seed {seed}: {trained} jobs trained, {found} results reused")

    def close(self) -> None:
        """See :class:`Progress`."""

    def _described(self, run: _Run, now: float) -> str:
        standing = self._standings[run]
        parts = [
            f"{run[0]} seed {run[1]}: round {standing.rounds}/{self._rounds}",
            f"{virtual_time(standing.seconds)} virtual",
            standing.accuracy_text,
            standing.rounds_per_second(now),
        ]
        return ", ".join(parts)

    def _print(self, text: str) -> None:
        self.console.print(escape(text), soft_wrap=True)


class Live:
    """A bar for each active run, a line for each finished one, and a bar for all runs at the bottom."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.perf_counter) -> None:
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
        )
        self._clock = clock
        self._since = clock()
        self._rounds = 0
        self._everything: TaskID | None = None
        self._tasks: dict[_Run, TaskID] = {}
        self._standings: dict[_Run, _Standing] = {}

    def begin(self, runs: list[tuple[str, int]], rounds: int) -> None:
        """See :class:`Progress`."""
        self._rounds, self._since = rounds, self._clock()
        self._bars.start()
        self._everything = self._bars.add_task(f"all {len(runs)} runs", total=len(runs) * rounds, facts="rounds")

    def round(self, label: str, seed: int, round: int, seconds: float, accuracy: float | None) -> None:
        """See :class:`Progress`."""
        standing = self._standing((label, seed))
        self._advance_everything(round - standing.rounds)
        standing.advance(round, seconds, accuracy)
        self._bars.update(
            self._tasks[label, seed], completed=standing.rounds, facts=escape(self._facts(standing)), refresh=False
        )

    def end(self, label: str, seed: int, reason: str) -> None:
        """See :class:`Progress`."""
        standing = self._standing((label, seed))
        self._advance_everything(self._rounds - standing.rounds)
        self._since = self._clock()
        self._bars.remove_task(self._tasks.pop((label, seed)))
        name = escape(f"{label} seed {seed}")
        self._bars.console.print(f"{name}  {standing.rounds} rounds  {self._facts(standing)}  ended by {reason}")

    def shared(self, seed: int, trained: int, found: int) -> None:
        """See :class:`Progress`."""
        self._bars.console.print(f"seed {seed}: {trained} jobs trained, {found} results reused")

    def close(self) -> None:
        """See :class:`Progress`."""
        self._bars.stop()

    def _standing(self, run: _Run) -> _Standing:
        if run not in self._tasks:
            name = escape(f"{run[0]} seed {run[1]}")
            self._tasks[run] = self._bars.add_task(name, total=self._rounds, facts="")
            self._standings[run] = _Standing(started=self._since)
        return self._standings[run]

    def _advance_everything(self, rounds: int) -> None:
        if self._everything is not None:
            self._bars.advance(self._everything, rounds)

    def _facts(self, standing: _Standing) -> str:
        facts = (
            f"{virtual_time(standing.seconds)} virtual",
            standing.accuracy_text,
            standing.rounds_per_second(self._clock()),
        )
        return "  ".join(facts)
