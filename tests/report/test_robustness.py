"""The page says whether the winner stays the winner, from the run timed again under other conditions."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from edgefl.record.metric import ACCURACY
from edgefl.record.sensitivity import OWN, Condition
from edgefl.report import RunResult
from edgefl.report.page.sections import page
from edgefl.report.sensitivity import Answer, Question, read_sensitivity, robustness
from edgefl.report.statistics import mean_interval
from edgefl.rerun.replay import write_sensitivity


@pytest.fixture(scope="module")
def timed(small_run, tmp_path_factory):
    """The small run, timed again."""
    folder = tmp_path_factory.mktemp("timed") / "small"
    shutil.copytree(small_run.path, folder)
    write_sensitivity(folder)
    return RunResult(folder)


@pytest.fixture(scope="module")
def twice(small_run, tmp_path_factory):
    """The small run, timed again under its own conditions and with slow devices and links."""
    folder = tmp_path_factory.mktemp("twice") / "small"
    shutil.copytree(small_run.path, folder)
    write_sensitivity(folder, [OWN, Condition("high", 0.7)])
    return RunResult(folder)


def first_at(run, label, seed, accuracy, condition):
    """Seconds to a target, row by row from the two tables."""
    reached = [row["round"] for row in run.rounds_of(label, seed).to_pylist() if row["accuracy"] >= accuracy]
    rows = pq.read_table(run.path / "sensitivity.parquet").to_pylist()
    key = (label, seed, *condition)
    times = {
        row["round"]: row["seconds"]
        for row in rows
        if (row["label"], row["seed"], row["devices"], row["bandwidth"], row["draw"]) == key
    }
    return times[min(reached)] if reached else None


def test_under_the_runs_own_conditions_the_winner_is_the_summarys(twice):
    found = read_sensitivity(twice)
    answer = found.answer(Question("target", 0.3, ACCURACY), OWN)
    seconds = {
        label: [result.targets[0].seconds for result in results]
        for label, results in twice.results.items()
        if all(result.targets[0].reached for result in results)
    }
    best = min(seconds, key=lambda label: sum(seconds[label]))
    assert answer.leaders[0] == best
    assert answer.best == pytest.approx(mean_interval(seconds[best]))


def test_under_other_conditions_the_winner_is_that_of_the_tables_rows(twice):
    condition = Condition("high", 0.7)
    answer = read_sensitivity(twice).answer(Question("target", 0.3, ACCURACY), condition)
    seconds = {
        label: [first_at(twice, label, result.seed, 0.3, condition) for result in results]
        for label, results in twice.results.items()
    }
    reached = {label: values for label, values in seconds.items() if None not in values}
    assert answer.leaders[0] == min(reached, key=lambda label: sum(reached[label]))
    assert answer.best.mean == pytest.approx(sum(reached[answer.leaders[0]]) / 2)


@pytest.mark.full
def test_a_method_that_its_budget_had_ended_is_marked_as_perhaps_better(small_run, tmp_path):
    folder = tmp_path / "cut"
    shutil.copytree(small_run.path, folder)
    path = folder / "summary.json"
    path.write_text(path.read_text().replace('"reason": "rounds"', '"reason": "joules"'))
    write_sensitivity(folder)
    found = read_sensitivity(RunResult(folder))
    rows = pq.read_table(folder / "sensitivity.parquet").to_pylist()
    most = max(row["joules"] for row in rows if (row["label"], row["devices"]) == ("fedavg", "high"))
    assert found.answer(Question("joules", 2 * most, ACCURACY), OWN).least
    assert not found.answer(Question("joules", most / 1e3, ACCURACY), OWN).least


def swapped(run: RunResult, tmp_path) -> RunResult:
    """The same, but with slow devices one method is 100 s ahead of the others in both seeds: there it wins."""
    folder = tmp_path / "swapped"
    shutil.copytree(run.path, folder)
    table = pq.read_table(folder / "sensitivity.parquet")
    rows = table.to_pylist()
    loser = read_sensitivity(run).answer(Question("target", 0.3, ACCURACY), OWN).leaders[-1]
    other = next(label for label in run.labels if label not in (loser, winner(run)))
    for row in rows:
        if row["devices"] == "high":
            row["seconds"] = 1e-3 * row["round"] + (0 if row["label"] == other else 100)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), folder / "sensitivity.parquet")
    return RunResult(folder)


def winner(run: RunResult) -> str:
    return read_sensitivity(run).answer(Question("target", 0.3, ACCURACY), OWN).leaders[0]


@pytest.mark.full
def test_a_winner_that_changes_is_said_and_marked(timed, tmp_path):
    run = swapped(timed, tmp_path)
    line = robustness(read_sensitivity(run))[0]
    assert line.startswith(f"First at 30 %: {winner(timed)}")
    assert "in 6 of 9 conditions" in line
    assert "leads with slow devices (70 %, 100 %, 130 % bandwidth)" in line
    written = page([run])
    assert written.count('<td class="changed">≠ ') == 3
    assert written.count('<td class="own">') == 1


def test_nobody_is_an_answer(twice):
    assert read_sensitivity(twice).answer(Question("target", 0.999, ACCURACY), OWN) == Answer((), None, least=False)
