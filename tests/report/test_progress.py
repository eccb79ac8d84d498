"""The progress of runs: one line that changes on a terminal, few plain lines otherwise."""

import io
import math
from dataclasses import fields

import pytest

from edgefl.record.metric import ACCURACY
from edgefl.record.rounds import RoundRow
from edgefl.record.summary import SeedResult
from edgefl.report.progress import Progress
from edgefl.tasks.regression import RMSE

from .conftest import seed_result


class Clock:
    """A clock that is set by hand."""

    seconds = 0.0

    def __call__(self):
        return self.seconds


class Terminal(io.StringIO):
    def isatty(self):
        return True


def row(round, accuracy):
    others = dict.fromkeys((field.name for field in fields(RoundRow)), 0)
    return RoundRow(**{**others, "round": round, "accuracy": accuracy, "metric": accuracy, "amounts": {}})


def result(reason):
    metric = {"name": "accuracy", "better": "higher", "share": True, "title": "accuracy"}
    return SeedResult.model_validate(seed_result(stop={"reason": reason, "round": 1}, metric=metric))


def told(progress, clock):
    """Two runs of four rounds, the second one ended early; 6 s a round."""
    progress.began([("fedavg", 0), ("[b]odd\x1b", 1)], 4)
    progress.run_began("fedavg", 0)
    for round in (1, 2, 3, 4):
        clock.seconds += 6
        progress.round_ended(row(round, round / 10 if round % 2 else math.nan))
    progress.run_ended(result("rounds"))
    progress.run_began("[b]odd\x1b", 1)
    progress.round_ended(row(1, math.nan))
    progress.run_ended(result("joules"))


def test_without_a_terminal_there_are_few_lines_of_one_layout():
    """At most one line every 10 s about a run: after its second and its fourth round, and at its end."""
    screen, clock = io.StringIO(), Clock()
    told(Progress(lambda: ACCURACY, screen, clock), clock)
    assert screen.getvalue().splitlines() == [
        "2 runs of at most 4 rounds",
        "run 1/2  fedavg, seed 0   round 2/4  best accuracy 10.0 %  36 s left",
        "run 1/2  fedavg, seed 0   round 4/4  best accuracy 30.0 %  24 s left",
        "run 1/2  fedavg, seed 0   round 4/4  best accuracy 30.0 %  24 s left  ended by last round",
        r"run 2/2  [b]odd\x1b, seed 1  round 1/4  best accuracy –  0 s left  ended by energy",
    ]


@pytest.mark.parametrize("terminal", [False, True])
def test_another_metric_has_its_own_name_and_no_per_cent(terminal):
    screen = Terminal() if terminal else io.StringIO()
    progress = Progress(lambda: RMSE, screen)
    told(progress, Clock())
    progress.clear()
    output = screen.getvalue()
    assert "best RMSE 0.1" in output
    assert "best RMSE –" in output
    assert output.count("ended by") == 2
    if terminal:
        assert output.endswith("\r\x1b[K"), "the line is removed"
        assert output.count("\n") == 2
