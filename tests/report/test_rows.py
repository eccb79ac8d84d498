"""The comparison says what the summaries say, in every format and on every width."""

from __future__ import annotations

import csv
import io
import json
from functools import reduce
from statistics import fmean
from unittest.mock import ANY

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from edgefl.report import as_csv, as_latex, as_markdown, comparison_rows, comparison_table
from edgefl.report.comparison import comparison, comparison_grid
from edgefl.report.figures import FIGURES
from edgefl.report.rows import notes

from .conftest import seed_result, target


def printed(run, width):
    console = Console(width=width, file=io.StringIO(), record=True, color_system=None)
    console.print(comparison_table(run, width=width))
    return console.export_text()


def test_a_row_holds_means_over_the_seeds(three_methods):
    rows = {row.label: row for row in comparison_rows(three_methods)}
    assert list(rows) == three_methods.labels
    assert rows["fedavg"]["accuracy.final"].mean == pytest.approx(0.952)
    assert rows["fedavg"]["seconds"].mean == pytest.approx(51.0)
    assert rows["fedavg"].stops == (("joules", 3),)
    assert rows["fedavg"]["blocks.actual"] is None
    assert rows["fedbr"]["blocks.uniform"].mean == 150_000_000


def test_a_target_that_some_seeds_miss_is_counted_never_averaged(three_methods):
    late = comparison_rows(three_methods)[1].targets[0.9]
    assert (late.reached, late.seeds, late.mean, late.median) == (2, 3, None, 25.5)
    assert "| 2/3 median 25.5 |" in as_markdown(comparison_rows(three_methods))
    assert any("counts as later" in line for line in notes(comparison_rows(three_methods)))


def test_the_ratio_to_the_optimum_is_a_note_and_a_figure_for_machines(make_run):
    measured = [seed_result(seed, ratio_to_optimum=ratio) for seed, ratio in enumerate((2.75, 2.95))]
    rows = comparison_rows(make_run({"fedavg": measured, "fedbr": [seed_result(0), seed_result(1)]}))
    expected = (
        "Rounds last at most 2.85 ± 1.27 (fedavg) times as long as the shortest possible ones with as many updates, "
        "from any clients (mean over the rounds)."
    )
    assert [line for line in notes(rows) if "shortest possible" in line] == [expected]
    header, fedavg, fedbr = as_csv(rows).splitlines()
    place = header.split(",").index("ratio_to_optimum")
    assert (float(fedavg.split(",")[place]), fedbr.split(",")[place]) == (pytest.approx(2.85), "")


@pytest.mark.parametrize("width", [80, 120])
def test_no_figure_and_no_header_is_cut_on_any_usual_terminal(three_methods, width):
    text = printed(three_methods, width)
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    for word in ("method", "accuracy", "to 90 %", "wasted", "energy", "exposed", "hidden", "stopped"):
        assert word in text
    assert text.count("4.41") == 1


def test_csv_holds_base_units_in_full_precision(three_methods):
    records = list(csv.DictReader(io.StringIO(as_csv(comparison_rows(three_methods)))))
    assert [record["method"] for record in records] == three_methods.labels
    assert float(records[0]["accuracy_final"]) == pytest.approx(0.952, rel=1e-12)
    assert float(records[1]["bytes_down_uniform_blocks"]) == 150_000_000
    assert records[0]["bytes_down_uniform_blocks"] == ""
    assert records[1]["seconds_to_0.9"] == ""
    assert (records[1]["seconds_to_0.9_reached"], records[1]["seconds_to_0.9_median"]) == ("2", "25.5")


def test_intervals_are_cut_to_what_is_possible_where_they_are_shown_alone(make_run):
    finals = [(0.02, 3.0), (0.30, 40.0)]
    run = make_run({"a": [seed_result(n, accuracy__final=each, seconds=time) for n, (each, time) in enumerate(finals)]})
    rows = comparison_rows(run)
    (cells,) = comparison_grid(rows).rows
    assert cells[1].line == "16.0 [0, 100.0]"
    assert any("[0, 256]" in cell.line or "[0, 256.6]" in cell.line for cell in cells)
    assert "[low, high]: the 95 % interval, cut off at 0 or at 100 %." in notes(rows)
    (record,) = csv.DictReader(io.StringIO(as_csv(rows)))
    assert float(record["accuracy_final_half_width"]) == pytest.approx(12.7062 * 0.14, rel=1e-5)
    sure = make_run({"a": [seed_result(n, seconds=50.0 + n) for n in range(3)]}, folder="sure")
    assert not [note for note in notes(comparison_rows(sure)) if note.startswith("[")]


def test_every_format_has_the_figures_of_the_summary_that_all_seeds_have(make_run):
    on_clients = {"mean": 0.7, "cumulative": 0.72, "worst_tenth": 0.4}
    both = {"rounds_without_update": 1, "refused": 3}
    full = [seed_result(seed, clients=on_clients, ensemble={"final": 0.9, "best": 0.95}, **both) for seed in range(2)]
    partly = [seed_result(0, clients=on_clients, **both), seed_result(1, **both)]
    run = make_run({"fedavg": full, "moon": partly})
    rows = comparison_rows(run)
    summary = json.loads((run.path / "summary.json").read_text(encoding="utf-8"))["methods"]
    for row, record, data in zip(
        rows, csv.DictReader(io.StringIO(as_csv(rows))), comparison(run).data["rows"], strict=True
    ):
        for figure in (each for each in FIGURES if each.dimension != "metric"):
            at_each = [
                reduce(lambda part, name: part and part.get(name), figure.path.split("."), seed)
                for seed in summary[row.label]
            ]
            expected = None if None in at_each else fmean(at_each)
            in_json = reduce(lambda part, name: part and part.get(name), figure.path.split("."), data)
            assert in_json == (None if expected is None else {"mean": pytest.approx(expected), "half_width": ANY}), (
                figure
            )
            if figure.name in record:
                assert (
                    record[figure.name] == ""
                    if expected is None
                    else float(record[figure.name]) == pytest.approx(expected)
                )
            else:
                assert figure.path.startswith(("blocks", "personalisation", "metric", "transfers", "ratio"))
    assert "clients worst tenth, %" in as_markdown(rows)
    assert "personalised" not in as_markdown(rows)


@pytest.mark.parametrize("unused", [{"rounds": 0}, {"rounds": 3, "rounds_without_update": 3}])
def test_a_method_without_any_update_has_no_metric_in_the_table(make_run, unused):
    on_clients = {"mean": 0.7, "cumulative": 0.72, "worst_tenth": 0.4}
    stop = {"reason": "stalled", "round": unused["rounds"], "message": "no update arrived"}
    stalled = seed_result(0, stop=stop, accuracy__final=0.1, clients=on_clients, **unused)
    rows = comparison_rows(make_run({"a": [seed_result(0, clients=on_clients)], "gone": [stalled]}))
    assert [rows[0][path].mean for path in ("accuracy.final", "clients.mean")] == [0.9, 0.7]
    assert [rows[1][path] for path in ("accuracy.final", "accuracy.best", "clients.mean")] == [None, None, None]
    (line,) = (line for line in as_markdown(rows).splitlines() if line.startswith("| gone"))
    assert line.startswith("| gone | – | – |")
    untrained = "No trained model was evaluated: time, traffic and energy only."
    assert untrained not in notes(rows)
    assert untrained in notes(comparison_rows(make_run({"gone": [stalled]}, folder="alone")))


def test_updates_that_were_not_aggregated_are_counted_with_the_reasons(make_run):
    late = [seed_result(seed, bytes__by_fate={"late": 5_000_000, "dropped": 0}) for seed in (0, 1)]
    run = make_run({"a": late, "b": [seed_result(seed, bytes__by_fate={"late": 0}) for seed in (0, 1)]})
    for seed, used in ((0, [10] * 39 + [7]), (1, [9] * 2 + [10] * 38)):
        file = run.path / "a" / f"seed-{seed}" / "rounds.parquet"
        table = pq.read_table(file)
        place = table.column_names.index("aggregated")
        pq.write_table(table.set_column(place, "aggregated", pa.array(used, pa.int64())), file)
    told = [line for line in notes(comparison_rows(run)) if "updates" in line]
    assert told == ["a: 5 of 800 updates were not aggregated (all 2 seeds together), because clients were late."]


def test_latex_escapes_its_special_signs(make_run):
    text = as_latex(comparison_rows(make_run({"fed_avg&co#1": [seed_result(seed) for seed in range(3)]})))
    assert r"fed\_avg\&co\#1" in text
    body = [line for line in text.splitlines() if not line.startswith("%")]
    assert not any("±" in line or "–" in line for line in body)
    assert len({line.count(" & ") for line in body if line.endswith(r"\\")}) == 1


def test_without_training_there_are_no_columns_of_accuracy(make_run):
    untrained = {"final": None, "best": None, "ema": None}
    run = make_run({"fedavg": [seed_result(accuracy=untrained, targets=[target(0.9, None)])]}, trained=False)
    text = as_markdown(comparison_rows(run))
    assert "accuracy" not in text.splitlines()[0]
    assert "No trained model was evaluated" in text


def test_without_training_a_target_was_not_missed_but_not_measured(make_run):
    untrained = seed_result(accuracy={"final": None, "best": None, "ema": None}, targets=[target(0.3, None)])
    trained = make_run({"fedavg": [seed_result(targets=[target(0.3, 5.0)])]}, folder="trained")
    bare = make_run({"fedavg": [untrained]}, folder="bare", trained=False)
    rows = comparison_rows(bare, trained)
    text = as_markdown(rows)
    assert "to 30 %" in text
    assert "never" not in text
    assert [list(row.targets) for row in rows] == [[], [0.3]]


def test_runs_side_by_side_are_told_apart_by_their_folders(make_run):
    one = make_run({"fedavg": [seed_result()]}, folder="slow")
    other = make_run({"fedavg": [seed_result()]}, folder="fast")
    assert [row.run for row in comparison_rows(one, other)] == ["slow", "fast"]
    assert as_markdown(comparison_rows(one, other)).splitlines()[0].startswith("| run | method |")


def personal(seed, gain):
    shared = {"mean": 0.5, "cumulative": 0.52, "worst_tenth": 0.2}
    fitted = {"kind": "calibration", **{name: value + gain for name, value in shared.items()}}
    return seed_result(seed, clients=shared, personalisation=fitted, ensemble={"final": 0.93, "best": 0.94})


def test_clients_accuracies_are_means_over_the_seeds(make_run):
    run = make_run({"fedavg": [personal(0, 0.1), personal(1, 0.2)]})
    (row,) = comparison_rows(run)
    assert row["clients.mean"].mean == pytest.approx(0.5)
    assert row["personalisation.mean"].mean == pytest.approx(0.65)
    assert row["personalisation.worst_tenth"].mean == pytest.approx(0.35)
    (told,) = comparison(run).data["rows"]
    # As summary.json calls them.
    assert told["personalisation"]["worst_tenth"]["mean"] == pytest.approx(0.35)
    assert told["clients"]["cumulative"]["mean"] == pytest.approx(0.52)
    assert told["ensemble"]["final"]["mean"] == pytest.approx(0.93)
    header, _, line, *_ = as_markdown([row]).splitlines()
    cells = dict(zip(header.split(" | "), line.split(" | "), strict=True))
    assert cells["clients mean, %"] == "50.0 ±0.0" or cells["clients mean, %"] == "50.0"
    assert cells["ensemble final, %"].startswith("93.0")
