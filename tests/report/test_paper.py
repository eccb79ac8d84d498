"""The table as papers lay it out, against the definition of the smoothed accuracy worked out anew."""

import csv
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgefl.cli.entry import main
from edgefl.errors import UserError
from edgefl.report import RunResult
from edgefl.report.paper import paper_rows, paper_table
from edgefl.report.statistics import mean_interval

from .conftest import seed_result, target


@pytest.fixture
def smoothed_run(make_run):
    """Two methods and two seeds whose smoothed accuracy rises by a known amount each round, 20 rounds."""

    def make(steps, rounds=20, **how):
        methods = {
            label: [
                seed_result(seed, rounds=rounds, targets=[target(0.5, None), target(0.8, None)])
                for seed in range(len(found))
            ]
            for label, found in steps.items()
        }
        run = make_run(methods, **how)
        for label, found in steps.items():
            for seed, step in enumerate(found):
                file = run.path / label / f"seed-{seed}" / "rounds.parquet"
                table = pq.read_table(file)
                values = pa.array(step * np.arange(1, rounds + 1))
                pq.write_table(table.set_column(table.column_names.index("accuracy_ema"), "accuracy_ema", values), file)
        return RunResult(run.path)

    return make


def test_accuracy_at_a_round_and_rounds_to_a_target_are_read_from_the_smoothed_accuracy(smoothed_run):
    run = smoothed_run({"quick": [0.05, 0.05], "slow": [0.03, 0.02]})
    quick, slow = paper_rows([run], at=[10, 20])
    assert quick.at[10].mean == pytest.approx(0.5)
    assert slow.at[20] == mean_interval([0.6, 0.4])
    assert quick.to[0.5].mean.mean == 10
    assert (slow.to[0.5].reached, slow.to[0.5].seeds, slow.to[0.5].median) == (1, 2, None)
    cells = paper_table([run], at=[10, 20]).lines
    assert cells[0] == ["quick", "50.0 %", "100.0 %", "10", "16"]
    assert cells[1][0] == "slow"
    assert cells[1][3:] == ["20+ (1/2)", "20+"]


def test_the_smoothing_of_a_real_run_is_the_moving_average_with_nine_tenths(small_run):
    for row in paper_rows([small_run], at=[1, 4, 6]):
        for round in (1, 4, 6):
            found = []
            for seed in small_run.seeds:
                accuracies = small_run.rounds_of(row.compared.label, seed).column("accuracy").to_pylist()
                smoothed = accuracies[0]
                for accuracy in accuracies[1:round]:
                    smoothed = 0.9 * smoothed + 0.1 * accuracy
                found.append(smoothed)
            assert row.at[round].mean == pytest.approx(np.mean(found))


def test_where_more_than_half_reach_a_target_the_median_stands_with_their_number(smoothed_run):
    assert paper_table([smoothed_run({"one": [0.05, 0.025, 0.01]})]).lines[0][-2] == "median 20 (2/3)"


def test_a_run_that_ended_before_a_round_has_no_accuracy_there(smoothed_run):
    long = smoothed_run({"one": [0.05]}, folder="long")
    short = smoothed_run({"one": [0.05]}, rounds=8, folder="short")
    rows = paper_rows([long, short])
    assert list(rows[0].at) == [10, 20]
    assert rows[1].at == {10: None, 20: None}
    grid = paper_table([long, short])
    assert grid.lines[1] == ["short", "one", "–", "–", "8+", "8+"]
    assert any("ended before this round" in note for note in grid.notes)


def test_the_best_of_a_column_is_bold_with_what_is_not_decided(smoothed_run):
    run = smoothed_run({"a": [0.05] * 3, "b": [0.04] * 3, "c_c": [0.05] * 3})
    table = paper_table([run], at=[10])
    assert table.columns[1].best == {0, 2}
    assert "| a | **50.0 %** |" in table.markdown()
    assert r"c\_c & \textbf{50.0 \%} &" in table.latex()


def test_refused_jobs_and_rounds_without_an_update_stand_below_and_in_the_csv(make_run):
    idle = [seed_result(seed, rounds=4, refused=3, rounds_without_update=2) for seed in range(2)]
    busy = [seed_result(seed, rounds=4) for seed in range(2)]
    table = paper_table([make_run({"idle": idle, "busy": busy})])
    assert [note for note in table.notes if note.startswith(("idle", "busy"))] == [
        "idle: refused jobs, for which a device has too little memory (edgefl plan names the devices): 6 and "
        "rounds without an update: 4 (all 2 seeds)."
    ]
    records = csv.DictReader(io.StringIO(table.csv()))
    assert [(each["refused"], each["rounds_without_update"]) for each in records] == [("3", "2"), ("0", "0")]


def test_without_training_there_is_nothing_to_lay_out(late_run, capsys):
    with pytest.raises(UserError, match="nothing was trained"):
        paper_rows([late_run])
    assert main(["report", str(late_run.path), "--layout", "paper"]) == 2
    assert "nothing was trained" in capsys.readouterr().err


def test_a_round_beyond_the_run_is_refused_and_one_that_it_was_to_have_is_not(small_run, smoothed_run, capsys):
    assert main(["report", str(small_run.path), "--layout", "paper", "--at", "99"]) == 2
    assert capsys.readouterr().err == "error: --at 99: the run has 6 rounds\n"
    early = smoothed_run({"one": [0.05]}, rounds=8, training={"rounds": 20})
    (row,) = paper_rows([early], at=[8, 20])
    assert row.at[8].mean == pytest.approx(0.4)
    assert row.at[20] is None
