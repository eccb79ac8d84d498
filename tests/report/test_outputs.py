"""An output never replaces a file of a run, a file of a sweep or an input."""

import pytest

from edgefl.cli.entry import main
from edgefl.errors import UserError
from edgefl.record import names
from edgefl.record.paths import INPUT_ENDINGS, output_path

OPTIONS = {
    "a report": ["report", "RUN", "-o"],
    "a page": ["report", "RUN", "--html"],
    "a trace": ["timeline", "RUN", "--method", "fedavg", "-o"],
    "a landscape": ["diagnose", "RUN", "--landscape"],
    "a profile": ["profile", "fit", "RUN/costs.json", "-o"],
}


def own_files(run):
    """Every file of a run, and every name that a run directory may hold while it is in progress."""
    seed = run / "fedavg" / "seed-0"
    yield from (path for path in run.rglob("*") if path.is_file())
    yield from (run / name for name in names.FILES)
    yield from (seed / name for name in names.SEED_FILES)


def test_no_output_replaces_a_file_of_a_run(small_run, capsys):
    run = small_run.path
    for path in own_files(run):
        with pytest.raises(UserError, match=r"edgefl keeps this file itself|are inputs"):
            output_path(path)
    summary = (run / "summary.json").read_bytes()
    for option in OPTIONS.values():
        assert main([*(part.replace("RUN", str(run)) for part in option), str(run / "summary.json")]) == 2
        message = capsys.readouterr().err
        assert message.startswith(f"error: {run / 'summary.json'}: ")
        assert message.count("\n") == 1
    assert (run / "summary.json").read_bytes() == summary


def test_a_sweeps_table_and_an_input_are_not_replaced(tmp_path):
    (tmp_path / names.SWEEP).write_text("{}")
    for name in (*names.IN_A_SWEEP, *(f"mine{ending}" for ending in INPUT_ENDINGS)):
        (tmp_path / name).touch()
        with pytest.raises(UserError, match=r"edgefl keeps this file itself|are inputs"):
            output_path(tmp_path / name)


def test_names_of_a_run_are_free_elsewhere(tmp_path):
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "sub").mkdir()
    for name in ("summary.json", "costs.json", "sub/accuracy.png", "sweep.json"):
        assert output_path(tmp_path / name) == tmp_path / name


@pytest.mark.parametrize(
    ("command", "name", "reason"),
    [
        (["schedule", "nothing.yaml", "-o"], "no/x.png", "its folder does not exist"),
        (["timeline", "nothing", "--png"], "x.exe", "found 'exe'"),
    ],
)
def test_a_wrong_output_is_refused_before_anything_is_read(command, name, reason, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*command, name]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"error: {name}: cannot be written: ")
    assert reason in message


def test_an_output_of_ones_own_may_be_replaced(small_run, tmp_path):
    for _ in range(2):
        assert main(["report", str(small_run.path), "-o", str(tmp_path / "mine.txt")]) == 0
    assert "fedadc" in (tmp_path / "mine.txt").read_text()
