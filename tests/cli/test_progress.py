"""The progress display, live and in lines."""

import io
import math
from dataclasses import fields

from rich.console import Console

from edgefl.cli.progress import Lines, Live, watching
from edgefl.record.metric import ACCURACY
from edgefl.record.rounds import RoundRow
from edgefl.record.summary import Accuracy, Bytes, Communication, MetricResult, SeedResult, Stop
from edgefl.tasks.regression import RMSE


class Clock:
    """A clock that is set by hand."""

    seconds = 0.0

    def __call__(self):
        return self.seconds


def accuracy():
    return ACCURACY


def console(terminal):
    return Console(file=io.StringIO(), force_terminal=terminal, width=200, highlight=False, color_system=None)


def row(round, seconds, accuracy):
    others = dict.fromkeys((field.name for field in fields(RoundRow)), 0)
    return RoundRow(**{**others, "round": round, "seconds": seconds, "accuracy": accuracy, "metric": accuracy})


def result(reason):
    return SeedResult(
        seed=0,
        stop=Stop(reason=reason, round=1),
        accuracy=Accuracy(),
        metric=MetricResult(name="accuracy", better="higher", share=True, title="accuracy"),
        seconds=1.0,
        rounds=1,
        rounds_without_update=0,
        refused=0,
        flops=0.0,
        joules=0.0,
        bytes=Bytes(down=0, up=0, useful=0, wasted=0),
        client_bytes=0,
        communication=Communication(exposed_seconds=0.0, hidden_seconds=0.0),
    )


def told(progress, clock=None):
    """Two runs of four rounds, the second one ended early."""
    progress.began([("fedavg", 0), ("[b]odd", 1)], 4)
    progress.run_began("fedavg", 0)
    for round in (1, 2, 3, 4):
        if clock is not None:
            clock.seconds += 6
        progress.round_ended(row(round, round * 30.0, round / 10 if round % 2 else math.nan))
    progress.run_ended(result("rounds"))
    progress.run_began("[b]odd", 1)
    progress.round_ended(row(1, 7.25, math.nan))
    progress.run_ended(result("joules"))


def test_without_a_terminal_there_are_few_lines_with_all_facts():
    screen, clock = console(terminal=False), Clock()
    told(Lines(accuracy, screen, clock), clock)
    lines = screen.file.getvalue().splitlines()
    assert lines[0] == "2 runs of at most 4 rounds"
    # 6 s between rounds, and at most one line every 10 s: after the second and the fourth round.
    for number, facts in ((1, ("fedavg", "2/4", "60.0 s", "10.0%")), (3, ("4/4", "2.00 min", "30.0%", "1 left")),
                          (4, ("[b]odd", "1/4", "7.25 s", "–", "joules", "0 left"))):  # fmt: skip
        assert all(fact in lines[number] for fact in facts), lines[number]


def test_on_a_terminal_every_finished_run_leaves_a_line():
    screen = console(terminal=True)
    live = Live(accuracy, screen)
    told(live)
    live.close()
    output = screen.file.getvalue()
    assert "fedavg seed 0  4 rounds  2.00 min virtual  accuracy  30.0%" in output
    assert "[b]odd seed 1  1 rounds" in output
    assert "ended by joules" in output


def test_an_end_without_a_round_is_told_too():
    for screen in (console(terminal=False), console(terminal=True)):
        with watching(accuracy, screen) as progress:
            progress.began([("a", 0)], 3)
            progress.run_began("a", 0)
            progress.run_ended(result("stalled"))
        assert "ended by stalled" in screen.file.getvalue()


def test_another_metric_has_its_own_name_and_no_per_cent():
    for terminal in (False, True):
        screen = console(terminal=terminal)
        with watching(lambda: RMSE, screen) as progress:
            told(progress)
        output = screen.file.getvalue()
        assert "RMSE 0.3" in output
        assert "RMSE –" in output
        assert "metric" not in output
