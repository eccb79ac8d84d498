"""A page about a run in progress, which reloads itself: a file that is written anew after a round, without a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from edgefl.errors import in_words
from edgefl.record.events import Event, Listener
from edgefl.record.metric import Metric
from edgefl.record.paths import RunPaths, is_interrupted, write_output
from edgefl.record.rounds import RoundRow
from edgefl.record.summary import SeedResult
from edgefl.record.unfinished import read_unfinished
from edgefl.report.glance import headline, measures
from edgefl.report.html import render
from edgefl.report.pictures import accuracy_figure, elements
from edgefl.report.quantities import quantity
from edgefl.report.rows import comparison_rows
from edgefl.report.run_result import RunResult
from edgefl.report.table import Table, figures, words
from edgefl.report.timeline.data import timeline_of
from edgefl.report.timeline.gantt import LOOKS, gantt_data
from edgefl.report.unfinished import UnfinishedRun
from edgefl.wording import counted

RELOAD = 5
"""Seconds after which a browser loads the page again."""
_LEAST, _SHARE = 2.0, 10
"""Seconds between two pages, and how many times as long as writing one of them takes."""


class LivePage(Listener):
    """Writes the page to ``file``; ``folder`` is the run directory, ``left`` returns the seconds of this machine left.

    A page that cannot be made is reported by ``warn`` once, and the run goes on without further pages.
    """

    def __init__(
        self,
        file: Path,
        folder: Path,
        metric: Callable[[], Metric],
        left: Callable[[], float],
        warn: Callable[[str], None],
    ) -> None:
        self._file, self._folder, self._metric, self._left, self._warn = file, folder, metric, left, warn
        self._finished: dict[str, tuple[SeedResult, ...]] = {}
        self._rows: dict[tuple[str, int], list[RoundRow]] = {}
        self._place, self._number = ("", 0), 0
        self._events: list[list[Event]] = [[], [], []]  # of the rounds before the last one, of the last, of the next
        self._due, self._runs, self._broken = 0.0, 0, False

    def began(self, runs: list[tuple[str, int]], rounds: int) -> None:
        self._runs, self._most = len(runs), rounds
        if is_interrupted(self._folder):
            self._finished = read_unfinished(self._folder).finished
        self._write(reload=True)
        self._due = 0.0  # the first round is shown at once

    def run_began(self, label: str, seed: int) -> None:
        self._place, self._number = (label, seed), self._number + 1
        self._rows = {self._place: []}
        self._events = [[], [], []]

    def events(self, rows: list[Event]) -> None:
        self._events[-1] += rows

    def round_ended(self, row: RoundRow) -> None:
        self._rows[self._place].append(row)
        self._events = [*self._events[1:], []]
        if time.monotonic() >= self._due:
            self._write(reload=True)

    def run_ended(self, result: SeedResult) -> None:
        label, _ = self._place
        self._finished[label] = (*self._finished.get(label, ()), result)
        self._rows = {}

    def ended(self) -> None:
        """The command ends: write the page of the finished run, or the last one of a run that was stopped."""
        if not self._runs:
            return  # the command was refused before a run began
        if RunPaths(self._folder).summary.is_file() and not is_interrupted(self._folder):
            from edgefl.report.page.sections import page

            self._try(lambda: page([RunResult(self._folder)]))
        else:
            self._write(reload=False)

    def _write(self, *, reload: bool) -> None:
        began = time.monotonic()
        self._try(lambda: self._page(reload=reload))
        self._due = time.monotonic() + max(_LEAST, _SHARE * (time.monotonic() - began))

    def _try(self, make: Callable[[], str]) -> None:
        if self._broken:
            return
        try:
            write_output(self._file, make())
        except Exception as error:  # noqa: BLE001  (the run does not depend on its page)
            self._warn(f"warning: {self._file} cannot be written: {in_words(error)}")
            self._broken = True

    def _page(self, *, reload: bool) -> str:
        (label, seed), rows = self._place, self._rows.get(self._place, [])
        run = None
        if self._finished or any(self._rows.values()):
            run = UnfinishedRun(self._folder, self._finished, self._rows, self._metric())
        gantt, fleet = _last_round(f"{label}, seed {seed}", self._events[0] + self._events[1], len(rows))
        where = f"{label}, seed {seed}: round {len(rows)} of {self._most}" if label else "it begins"
        facts = [
            ("run", f"{self._number} of {self._runs}", where),
            ("time left", quantity(self._left(), "seconds") if rows and reload else "–", "on this machine"),
            *fleet,
        ]
        figure = partial(accuracy_figure, [run], ["time"]) if run and run.trained else None
        return render(
            "live.html.jinja",
            title=str(self._folder),
            subtitle=[headline(run)] if run else [],
            facts=facts,
            reload=RELOAD if reload else 0,
            picture=elements("time", "metric over time", figure) if figure else "",
            table=_table(run) if run else None,
            gantt=gantt,
            kinds=list(LOOKS),
        )


def _table(run: RunResult) -> Table:
    rows = comparison_rows(run)
    ended = [sum(each.stop.reason != "unfinished" for each in run.results[row.label]) for row in rows]
    columns = [words("method", [row.label for row in rows]), figures("complete seeds", ended, "count")]
    return Table([*columns, figures("rounds", [row["rounds"] for row in rows], "count"), *measures(rows)])


def _last_round(name: str, events: Sequence[Event], number: int) -> tuple[list[Any], list[tuple[str, str, str]]]:
    """The bars of the round with this number, and in words what its clients did with their time."""
    timeline = timeline_of(events)
    timeline.rounds = [each for each in timeline.rounds if each.number == number]
    found = gantt_data({name: timeline})
    if not found or not found[0]["rounds"][0]["rows"]:
        return [], []
    [shown] = found[0]["rounds"]
    found[0]["of"] = number
    kinds, spent = list(LOOKS), dict.fromkeys(("computing", "transferring", "in the framework"), 0.0)
    clients = [bars for row, bars in shown["rows"].items() if row.startswith("client ")]
    for kind, start, end, _ in (bar for bars in clients for bar in bars):
        what = {"compute": "computing", "framework": "in the framework"}.get(kinds[kind], "transferring")
        spent[what] += (end - start) / 100 / max(1, len(clients))
    parts = {**spent, "waiting": max(0.0, 100 - sum(spent.values()))}
    state = ", ".join(f"{share:.0f} % {what}" for what, share in parts.items() if share >= 0.5)
    return found, [("fleet in the last round", counted(len(clients), "client"), state)]
