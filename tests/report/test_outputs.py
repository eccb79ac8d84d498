"""An output never replaces a result, an input, or what is no plain file."""

from __future__ import annotations

import os
import shutil

import pytest

from edgefl.cli.entry import main
from edgefl.errors import UserError
from edgefl.record import names
from edgefl.record.outputs import INPUT_ENDINGS, output_path, write_output
from edgefl.user_path import user_path

OPTIONS = {
    "a report": ["report", "RUN", "-o"],
    "a report in Markdown": ["report", "RUN", "--format", "markdown", "-o"],
    "JSON": ["report", "RUN", "--json", "-o"],
    "a page": ["report", "RUN", "--html"],
    "a trace": ["timeline", "RUN", "--method", "fedavg", "-o"],
    "a Gantt chart": ["timeline", "RUN", "--method", "fedavg", "--png"],
    "a landscape": ["diagnose", "RUN", "--landscape"],
    "who holds what": ["data", "show", "RUN/scenario.yaml", "-o"],
    "a profile": ["profile", "measure", "-o"],
    "a script": ["profile", "script", "-o"],
    "a fitted profile": ["profile", "fit", "RUN/costs.json", "-o"],
}


@pytest.fixture
def run(small_run, tmp_path):
    return shutil.copytree(small_run.path, tmp_path / "run")


def contents(folder):
    found = {}
    for path in sorted(folder.rglob("*")):
        plain = path.is_file() and not path.is_symlink()
        found[str(path)] = path.read_bytes() if plain else os.lstat(path).st_mode
    return found


def own_files(run):
    """Every file of a run, and every name that a run directory may hold while it is in progress."""
    seed = run / "fedavg" / "seed-0"
    yield from (path for path in run.rglob("*") if path.is_file())
    yield from (run / name for name in names.FILES)
    yield from (seed / name for name in names.SEED_FILES)
    yield run / names.RESULTS / "seed-0" / "anything"
    yield seed / names.CHECKPOINTS / "anything"
    yield run / names.SUMMARY.upper()


def refused(command, run, output, capsys):
    arguments = [part.replace("RUN", str(run)) for part in command]
    code = main([*arguments, str(output)])
    message = capsys.readouterr().err
    return code == 2 and message.startswith("error: ") and message.count("\n") == 1


@pytest.mark.parametrize("option", OPTIONS)
def test_no_output_replaces_a_file_of_a_run(option, run, capsys, monkeypatch):
    monkeypatch.chdir(run)
    before = contents(run)
    for path in own_files(run):
        for output in (path, path.relative_to(run)):
            if "profile" in OPTIONS[option] and not path.exists():
                continue  # a new profile or script: nothing is replaced
            assert refused(OPTIONS[option], run, output, capsys), output
    assert contents(run) == before


FIGURES = [
    ["schedule", "nothing.yaml", "-o"],
    ["timeline", "nothing", "--png"],
    ["diagnose", "nothing", "--landscape"],
    ["data", "show", "nothing.yaml", "-o"],
    ["profile", "check", "nothing.yaml", "nothing.csv", "-o"],
]


@pytest.mark.parametrize("command", FIGURES, ids=" ".join)
@pytest.mark.parametrize(("name", "reason"), [("no/x.png", "its folder does not exist"), ("x.exe", "found 'exe'")])
def test_what_cannot_be_drawn_is_refused_before_anything_is_read(command, name, reason, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*command, name]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"error: {name}: cannot be written: ")
    assert reason in message


def unusual(folder):
    for name in ("dangling", "link", "pipe", "folder", "chain"):
        yield folder / name
    yield from (folder / f"mine{ending}" for ending in INPUT_ENDINGS)
    yield from (f"{folder}/a\nb", f"{folder}/\x1b[31m", f"{folder}/\u202egpj.exe", f"{folder}/\0", "~nobody-here/x")


@pytest.mark.parametrize("option", OPTIONS)
def test_an_output_is_a_new_or_a_plain_file(option, run, tmp_path, capsys):
    folder = tmp_path / "outputs"
    (folder / "folder").mkdir(parents=True)
    (folder / "dangling").symlink_to("nowhere.html")
    (folder / "link").symlink_to(run / "summary.json")
    (folder / "chain").symlink_to("link")
    os.mkfifo(folder / "pipe")
    for ending in INPUT_ENDINGS:
        (folder / f"mine{ending}").write_text("name: mine\n")
    before = contents(tmp_path)
    for output in (*unusual(folder), "/dev/full", "/dev/null"):
        assert refused(OPTIONS[option], run, output, capsys), output
    assert contents(tmp_path) == before


@pytest.mark.parametrize("option", list(OPTIONS)[:6])
def test_an_output_may_be_new_or_replaced_also_next_to_the_runs_files(option, run, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    name = "mine.png" if "--png" in OPTIONS[option] else "mine.txt"
    for _ in range(2):
        assert main([*(part.replace("RUN", str(run)) for part in OPTIONS[option]), str(run / name)]) == 0
    assert main([*(part.replace("RUN", "~/run") for part in OPTIONS[option]), f"~/home-{name}"]) == 0
    assert (tmp_path / f"home-{name}").is_file()


def test_names_of_a_run_are_free_elsewhere(tmp_path):
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "sub").mkdir()
    for name in ("summary.json", "costs.json", "sub/accuracy.png", "sweep.json"):
        assert output_path(tmp_path / name) == tmp_path / name


def test_a_sweeps_table_and_state_are_not_replaced(tmp_path):
    (tmp_path / names.SWEEP).write_text("{}")
    for name in names.IN_A_SWEEP:
        with pytest.raises(UserError, match=r"edgefl keeps this file itself|are inputs"):
            output_path(tmp_path / name)


def test_a_link_in_the_path_hides_no_run(run, tmp_path):
    (tmp_path / "alias").symlink_to(run)
    with pytest.raises(UserError, match="edgefl keeps this file itself"):
        write_output(tmp_path / "alias" / "summary.json", "forged")


def test_the_shells_own_streams_are_written_to():
    reading, writing = os.pipe()
    write_output(output_path(f"/dev/fd/{writing}"), "through")
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "through"


def test_home_is_expanded_in_every_path_a_user_gives(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for command in (
        ["simulate", "--resume", "~/none"],
        ["verify", "~/none"],
        ["report", "~/none"],
        ["timeline", "~/none", "--method", "a", "-o", "~/x"],
        ["diagnose", "~/none"],
        ["replay", "~/none"],
        ["profile", "validate", "~/none"],
        ["profile", "fit", "~/none", "-o", "~/x"],
    ):
        assert main(command) == 2
        assert str(tmp_path / "none") in capsys.readouterr().err, command
    assert user_path("~/run") == tmp_path / "run"
    assert not (tmp_path / "~").exists()
