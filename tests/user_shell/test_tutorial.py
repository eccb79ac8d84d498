"""docs/tutorial.md and docs/own-data.md: their files and commands are enough, from an empty folder."""

from __future__ import annotations

import json

import pytest

from .given import Given
from .pages import ROOT, commands
from .session import Session


@pytest.fixture
def session_of(tmp_path):
    """The folder after all commands of a page but those that measure for minutes."""

    def follow(page, *, full=True):
        (tmp_path / "given").mkdir()
        (tmp_path / "shell").mkdir()
        session = Session(tmp_path / "shell", full=full)
        wanted = [command for command in commands(ROOT / "docs" / page) if not command.is_a_name]
        Given(tmp_path / "given").to(session, wanted)
        for command in wanted:
            if "profile measure" not in command.text:  # a shipped profile stands in for it
                done = session.call(command)
                assert done.failure is None, done.failure
        return session.folder

    return follow


@pytest.mark.parametrize(
    "full", [pytest.param(False, marks=pytest.mark.full), pytest.param(True, marks=pytest.mark.release)]
)
def test_the_tutorial_leads_from_an_empty_folder_to_a_report(session_of, full):
    folder = session_of("tutorial.md", full=full)
    summary = json.loads((folder / "runs" / "mine" / "summary.json").read_text())
    least = 0.85 if full else 0
    assert all(entry["accuracy"]["final"] > least for found in summary["methods"].values() for entry in found)
    scenario = (folder / "runs" / "mine" / "scenario.yaml").read_text(encoding="utf-8")
    assert "street.csv" in scenario, "the last run has the network of step 5"
    assert (folder / "clients.png").stat().st_size > 10_000
    assert "mine" in (folder / "mine.html").read_text(encoding="utf-8")


@pytest.mark.full
def test_the_commands_of_own_data_train_on_the_data_of_the_page(session_of):
    folder = session_of("own-data.md")
    for run in ("tables", "wine"):
        summary = json.loads((folder / "runs" / run / "summary.json").read_text())
        for method in ("fedavg", "scaffold"):
            assert summary["methods"][method][0]["accuracy"]["final"] > 0.6
    summary = json.loads((folder / "runs" / "estimates" / "summary.json").read_text())
    assert summary["methods"]["fedavg"][0]["metric"]["final"] < 0.9  # 1 without a model
