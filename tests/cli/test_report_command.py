"""``edgefl report`` prints and writes what the report room makes of run directories."""

from __future__ import annotations

import csv
import io
import json

import pyarrow.parquet as pq
import pytest

from edgefl.cli.entry import main
from edgefl.record.summary import SCHEMA
from tests.report.conftest import rounds_table, with_metric


@pytest.fixture
def run_directory(tmp_path):
    """A run of two methods and one seed, by the contract of summary.json."""

    def make(name, final):
        path = tmp_path / name
        path.mkdir()
        result = {
            "seed": 0,
            "stop": {"reason": "rounds", "round": 2},
            "accuracy": {"final": final, "best": final, "ema": final},
            "seconds": 3.0,
            "rounds": 2,
            "rounds_without_update": 0,
            "refused": 0,
            "client_bytes": 30,
            "flops": 1.0,
            "joules": 5.0,
            "bytes": {"down": 10, "up": 20, "useful": 30, "wasted": 0},
            "communication": {"exposed_seconds": 1.0, "hidden_seconds": 0.0},
            "targets": [],
            "budgets": [],
        }
        result = with_metric(result)
        methods = {"fedavg": [result], "fedprox": [result]}
        summary = {
            "schema": SCHEMA,
            "scenario": "small",
            "edgefl": "0.1.0",
            "inputs": {},
            "software": {},
            "chosen": [],
            "methods": methods,
        }
        (path / "summary.json").write_text(json.dumps(summary))
        (path / "scenario.yaml").write_text("name: small\n")
        for label in methods:
            (path / label / "seed-0").mkdir(parents=True)
            pq.write_table(rounds_table(result, 1.0, True), path / label / "seed-0" / "rounds.parquet")
        return path

    return make


def test_the_table_and_the_verdict_are_printed(run_directory, capsys):
    assert main(["report", str(run_directory("one", 0.9))]) == 0
    printed = capsys.readouterr().out
    assert "fedprox" in printed
    assert "Best after 2 rounds:  all methods are equal, 90.0 %" in printed


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "latex"])
def test_each_format_can_be_written_to_a_file(run_directory, tmp_path, capsys, form):
    file = tmp_path / "out"
    assert main(["report", str(run_directory("one", 0.9)), "--format", form, "-o", str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert "fedavg" in file.read_text(encoding="utf-8")
    assert "\x1b" not in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(("columns", "widest", "to_file"), [("80", 80, False), (None, 100, True), ("wide", 100, False)])
def test_a_table_in_a_pipe_or_a_file_is_as_wide_as_columns_says(
    run_directory, tmp_path, monkeypatch, capsys, columns, widest, to_file
):
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    file = tmp_path / "out"
    assert main(["report", str(run_directory("one", 0.9)), *(["-o", str(file)] if to_file else [])]) == 0
    text = file.read_text(encoding="utf-8") if to_file else capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= widest
    heads = [line for line in text.splitlines() if line.startswith("method")]
    assert len(heads) == 1


def test_several_runs_stand_side_by_side(run_directory, capsys):
    assert main(["report", str(run_directory("one", 0.9)), str(run_directory("two", 0.8)), "--format", "csv"]) == 0
    records = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(record["run"], record["method"]) for record in records] == [
        ("one", "fedavg"),
        ("one", "fedprox"),
        ("two", "fedavg"),
        ("two", "fedprox"),
    ]


def test_what_is_no_run_is_one_message_and_exit_code_2(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert len(printed.err.splitlines()) == 1


def test_a_file_that_cannot_be_written_is_the_users_error(run_directory, tmp_path, capsys):
    assert main(["report", str(run_directory("one", 0.9)), "-o", str(tmp_path / "no" / "folder")]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.full
def test_the_page_is_written_without_a_table(shared_run, tmp_path, capsys):
    file = tmp_path / "page.html"
    assert main(["report", str(shared_run), "--html", str(file)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("instead", [["--html", "page.html"]])
def test_what_a_page_would_ignore_is_refused(run_directory, tmp_path, monkeypatch, capsys, instead):
    monkeypatch.chdir(tmp_path)
    run = str(run_directory("one", 0.9))
    before = sorted(tmp_path.iterdir())
    assert main(["report", run, *instead, "--format", "csv"]) == 2
    printed = capsys.readouterr()
    assert instead[0] in printed.err
    assert "--format" in printed.err
    assert (printed.out, sorted(tmp_path.iterdir())) == ("", before)


@pytest.mark.parametrize("other", [["--format", "csv"], ["--html", "page.html"]])
def test_json_and_another_form_are_refused_together(run_directory, capsys, other):
    assert main(["report", str(run_directory("one", 0.9)), "--json", *other]) == 2
    assert "--json" in capsys.readouterr().err
