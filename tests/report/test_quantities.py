"""Quantities in words, and results of a run."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.errors import UserError
from edgefl.record.names import STATE
from edgefl.report import RunResult
from edgefl.report.quantities import estimate, quantity, unit_for
from edgefl.report.statistics import Estimate
from edgefl.report.table import figures
from edgefl.units import parse

from .conftest import ROUNDS, seed_result


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (0.0, "seconds", "0 s"),
        (0.1234, "seconds", "123 ms"),
        (0.0004271, "seconds", "427 µs"),
        (119.0, "seconds", "119 s"),
        (150.0, "seconds", "2.50 min"),
        (7200.0, "seconds", "2.00 h"),
        (999.0, "bytes", "999 B"),
        (1_500.0, "bytes", "1.50 kB"),
        (2.5e9, "bytes", "2.50 GB"),
        (4321.0, "joules", "4.32 kJ"),
        (0.9521, "fraction", "95.2 %"),
    ],
)
def test_a_quantity_has_three_figures_and_a_fitting_unit(value, dimension, text):
    assert quantity(value, dimension) == text


@settings(max_examples=40)
@given(st.floats(1e-2, 1e12), st.sampled_from(["seconds", "bytes", "joules"]))
def test_what_is_printed_reads_back_within_one_percent(value, dimension):
    if dimension == "bytes":
        value = float(max(100, round(value)))
    assert parse(quantity(value, dimension), dimension) == pytest.approx(value, rel=1e-2, abs=1e-3)


@pytest.mark.parametrize(
    ("quantities", "dimension", "cells"),
    [
        ([0.27, 180.0], "seconds", ["0.27 s", "180 s"]),
        ([190e3, 1.2e9], "bytes", ["0.19 MB", "1200 MB"]),
        ([0.0, 2e3, 50e6], "bytes", ["0 kB", "2 kB", "50000 kB"]),
        ([0.27, 10800.0], "seconds", ["0.27 s", "10800 s"]),
        ([0.012, 3.0], "seconds", ["0.012 s", "3.00 s"]),
        ([30.0, 150.0, None], "seconds", ["0.50 min", "2.50 min", "–"]),
        ([0.001, 5.0], "number", ["0.0010", "5.00"]),
    ],
)
def test_the_smallest_figure_of_a_column_can_be_read(quantities, dimension, cells):
    assert figures("", quantities, dimension).cells == cells


@settings(max_examples=40)
@given(st.floats(1e-8, 1e6), st.floats(1e-12, 1.0))
def test_a_figure_keeps_two_digits_however_small_it_is_beside_the_largest(largest, share):
    figure = largest * share
    printed = unit_for([largest], "joules").number(figure)
    scale = unit_for([largest], "joules").scale
    assert float(printed) * scale == pytest.approx(figure, rel=0.0501)


def test_an_interval_is_never_rounded_to_nothing():
    assert estimate(Estimate(0.952, 0.00034, 3), "fraction") == "95.2 ± 0.03 %"
    assert estimate(Estimate(34.1, 0.0979, 3), "seconds") == "34.1 ± 0.1 s"


def test_the_rounds_of_all_methods_are_one_table_with_label_and_seed(three_methods):
    rounds = three_methods.rounds
    assert rounds.column_names[:3] == ["label", "seed", "round"]
    assert len(rounds) == 3 * (ROUNDS + ROUNDS - 3 + ROUNDS - 6)
    alone = three_methods.rounds_of("fedbr", 2)
    found = [row for row in rounds.to_pylist() if row["label"] == "fedbr" and row["seed"] == 2]
    assert [row["seconds"] for row in found] == alone["seconds"].to_pylist()


def test_an_unknown_method_or_seed_is_named_with_what_there_is(three_methods):
    with pytest.raises(UserError, match="did you mean 'fedavg'"):
        three_methods.rounds_of("fedagv", 0)
    with pytest.raises(UserError, match="no seed 7 of 'fedbr' in this run, found 0, 1, 2"):
        three_methods.rounds_of("fedbr", 7)


def test_a_missing_or_broken_table_is_the_users_error(three_methods):
    broken = three_methods.path / "fedavg" / "seed-0" / "rounds.parquet"
    broken.write_bytes(b"PAR1 no longer")
    with pytest.raises(UserError, match=r"rounds\.parquet: cannot be read"):
        _ = three_methods.rounds
    pq.write_table(pa.table({"round": [1], "seconds": [1.0], "joulez": [2.0]}), broken)
    with pytest.raises(UserError, match=r"rounds\.parquet: cannot be read: it has no column 'accuracy'"):
        three_methods.rounds_of("fedavg", 0)
    broken.unlink()
    with pytest.raises(UserError, match=r"rounds\.parquet: cannot be read: no such file$"):
        three_methods.rounds_of("fedavg", 0)


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"found no such folder"):
        RunResult(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"found no summary\.json"):
        RunResult(tmp_path)
    (tmp_path / STATE).write_text("{}")
    with pytest.raises(UserError, match=r"it is unfinished: edgefl simulate --resume "):
        RunResult(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda summary: summary.update(schema=1, edgefl="0.1.0"),
            "expected a run of schema 2, found 1; simulate its scenario.yaml again, or use the edgefl that wrote it "
            "(0.1.0)",
        ),
        (lambda summary: summary.update(methods={}), "methods"),
        (lambda summary: summary["methods"].update(fedavg=[]), "methods.fedavg: expected at least one seed"),
        (lambda summary: summary["methods"]["fedavg"][0].pop("joules"), "methods.fedavg.0.joules"),
    ],
)
def test_a_summary_that_breaks_the_contract_is_refused_with_the_field(make_run, change, message):
    run = make_run({"fedavg": [seed_result()]})
    file = run.path / "summary.json"
    summary = json.loads(file.read_text())
    change(summary)
    file.write_text(json.dumps(summary))
    with pytest.raises(UserError, match=r"summary\.json") as caught:
        RunResult(run.path)
    assert message in str(caught.value)


def test_keys_of_a_later_edgefl_are_passed_over(make_run):
    run = make_run({"fedavg": [seed_result(novelty={"x": 1})]})
    assert run.summary["methods"]["fedavg"][0]["novelty"] == {"x": 1}
