"""``edgefl report`` prints and writes what the report room makes of run directories."""

import shutil

import pytest

from edgefl.cli.entry import main
from edgefl.yaml_file import dump_yaml, read_yaml


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "latex"])
def test_each_format_can_be_written_to_a_file(shared_run, tmp_path, capsys, form):
    file = tmp_path / "out"
    assert main(["report", str(shared_run), "--format", form, "-o", str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert "fedavg" in file.read_text(encoding="utf-8")
    assert "\x1b" not in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(("columns", "widest", "to_file"), [("80", 80, False), (None, 100, True), ("wide", 100, False)])
def test_a_table_in_a_pipe_or_a_file_is_as_wide_as_columns_says(
    shared_run, tmp_path, monkeypatch, capsys, columns, widest, to_file
):
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    file = tmp_path / "out"
    assert main(["report", str(shared_run), *(["-o", str(file)] if to_file else [])]) == 0
    text = file.read_text(encoding="utf-8") if to_file else capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= widest
    heads = [line for line in text.splitlines() if line.startswith("method")]
    assert len(heads) == 1


def test_what_is_no_run_is_one_message_and_exit_code_2(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert len(printed.err.splitlines()) == 1


def test_options_that_an_earlier_build_did_not_have_are_no_differences(shared_run, tmp_path, capsys):
    folder = shutil.copytree(shared_run, tmp_path / "earlier")
    data = read_yaml(folder / "scenario.yaml")
    assert data["training"]["local"].pop("optimizer")["kind"] == "sgd"
    data["training"]["local"]["batch"] += 1
    (folder / "scenario.yaml").write_text(dump_yaml(data), encoding="utf-8")
    assert main(["report", str(shared_run), str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "optimizer" not in printed
    assert "Changed: batch 16 → 17\n" in printed


@pytest.mark.full
def test_the_page_is_written_without_a_table(shared_run, tmp_path, capsys):
    file = tmp_path / "page.html"
    assert main(["report", str(shared_run), "--html", str(file)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["--json"], ["--format", "csv"]),
        (["--json"], ["--html", "page.html"]),
        (["--html", "page.html"], ["--format", "csv"]),
        (["--at", "3"], []),
        (["--x", "time"], []),
    ],
)
def test_options_that_do_not_stand_together_are_refused(shared_run, capsys, one, other):
    assert main(["report", str(shared_run), *one, *other]) == 2
    printed = capsys.readouterr()
    assert one[0] in printed.err
    assert printed.out == ""
