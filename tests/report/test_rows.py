"""The comparison says what the summaries say, in every format and on every width."""

import csv
import io
import json
from functools import reduce
from statistics import fmean
from unittest.mock import ANY

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgefl.report import comparison, comparison_rows
from edgefl.report.rows import all_figures, remarks

from .conftest import seed_result, target


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
    assert "| 2/3 |" in comparison(three_methods).markdown()


def test_csv_holds_base_units_in_full_precision(three_methods):
    records = list(csv.DictReader(io.StringIO(comparison(three_methods).csv())))
    assert [record["method"] for record in records] == three_methods.labels
    assert float(records[0]["accuracy_final"]) == pytest.approx(0.952, rel=1e-12)
    assert float(records[1]["blocks_uniform"]) == 150_000_000
    assert records[0]["blocks_uniform"] == ""
    assert records[1]["seconds_to_0.9"] == ""
    assert (records[1]["seconds_to_0.9_reached"], records[1]["seconds_to_0.9_median"]) == ("2", "25.5")


DERIVED = ("bytes", "seconds_a_round", "useful_share", "bytes_unfinished")
"""Figures that these summaries do not have."""


def test_every_format_has_the_figures_of_the_summary_that_all_seeds_have(make_run):
    on_clients = {"mean": 0.7, "cumulative": 0.72, "worst_tenth": 0.4}
    both = {"rounds_without_update": 1, "refused": 3}
    full = [seed_result(seed, clients=on_clients, ensemble={"final": 0.9, "best": 0.95}, **both) for seed in range(2)]
    partly = [seed_result(0, clients=on_clients, **both), seed_result(1, **both)]
    run = make_run({"fedavg": full, "moon": partly})
    rows = comparison_rows(run)
    summary = json.loads((run.path / "summary.json").read_text(encoding="utf-8"))["methods"]
    for row, record, data in zip(
        rows, csv.DictReader(io.StringIO(comparison(run).csv())), comparison(run).data["rows"], strict=True
    ):
        for figure in (
            each for each in all_figures() if each.place and each.unit != "metric" and each.name not in DERIVED
        ):
            at_each = [
                reduce(lambda part, name: part and part.get(name), figure.place.split("."), seed)
                for seed in summary[row.label]
            ]
            expected = None if None in at_each else fmean(at_each)
            in_json = reduce(lambda part, name: part and part.get(name), figure.place.split("."), data)
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
                assert figure.place.startswith(
                    (
                        "blocks",
                        "peers",
                        "personalisation",
                        "metric",
                        "transfers",
                        "ratio",
                        "server",
                        "evaluation",
                        "bytes.by_fate",
                    )
                )
    text = comparison(run, detailed=True).markdown()
    assert "worst tenth of clients" in text
    assert "personalised" not in text


@pytest.mark.parametrize("unused", [{"rounds": 0}, {"rounds": 3, "rounds_without_update": 3}])
def test_a_method_without_any_update_has_no_metric_in_the_table(make_run, unused):
    on_clients = {"mean": 0.7, "cumulative": 0.72, "worst_tenth": 0.4}
    stop = {"reason": "stalled", "round": unused["rounds"], "message": "no update arrived"}
    stalled = seed_result(0, stop=stop, accuracy__final=0.1, clients=on_clients, **unused)
    run = make_run({"a": [seed_result(0, clients=on_clients)], "gone": [stalled]})
    file = run.path / "gone" / "seed-0" / "rounds.parquet"
    table = pq.read_table(file)
    place = table.column_names.index("aggregated")
    pq.write_table(table.set_column(place, "aggregated", pa.array([0] * len(table), pa.int64())), file)
    rows = comparison_rows(run)
    assert [rows[0][path].mean for path in ("accuracy.final", "clients.mean")] == [0.9, 0.7]
    assert [rows[1][path] for path in ("accuracy.final", "accuracy.best", "clients.mean")] == [None, None, None]
    (line,) = (line for line in comparison(run).markdown().splitlines() if line.startswith("| gone"))
    assert line.startswith("| gone | – |")


def test_updates_that_were_not_aggregated_are_counted(make_run):
    late = [seed_result(seed, bytes__by_fate={"late": 5_000_000, "dropped": 0}) for seed in (0, 1)]
    run = make_run({"a": late, "b": [seed_result(seed, bytes__by_fate={"late": 0}) for seed in (0, 1)]})
    for seed, used in ((0, [10] * 39 + [7]), (1, [9] * 2 + [10] * 38)):
        file = run.path / "a" / f"seed-{seed}" / "rounds.parquet"
        table = pq.read_table(file)
        place = table.column_names.index("aggregated")
        pq.write_table(table.set_column(place, "aggregated", pa.array(used, pa.int64())), file)
    assert remarks(comparison_rows(run)) == ["a: updates of late or lost clients: 5 of 800 (all 2 seeds)."]


def test_without_training_a_target_was_not_missed_but_not_measured(make_run):
    untrained = seed_result(accuracy={"final": None, "best": None, "ema": None}, targets=[target(0.3, None)])
    trained = make_run({"fedavg": [seed_result(targets=[target(0.3, 5.0)])]}, folder="trained")
    bare = make_run({"fedavg": [untrained]}, folder="bare", trained=False)
    rows = comparison_rows(bare, trained)
    text = comparison(bare, trained, detailed=True).markdown()
    assert "30 % at" in text
    assert "never" not in text
    assert [list(row.targets) for row in rows] == [[], [0.3]]
