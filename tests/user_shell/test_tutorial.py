"""docs/tutorial.md: its files and commands lead from an empty folder to a report."""

from __future__ import annotations

import json

from .given import Given
from .pages import ROOT, commands
from .session import Session


def test_the_tutorial_leads_from_an_empty_folder_to_a_report(tmp_path):
    (tmp_path / "given").mkdir()
    (tmp_path / "shell").mkdir()
    session = Session(tmp_path / "shell", full=True)
    wanted = [command for command in commands(ROOT / "docs" / "tutorial.md") if not command.is_a_name]
    Given(tmp_path / "given").to(session, wanted)
    for command in wanted:
        if "profile measure" not in command.text:  # minutes; a shipped profile stands in for it
            done = session.run(command.text)
            assert done.failure is None, done.failure
    summary = json.loads((session.folder / "runs" / "mine" / "summary.json").read_text())
    assert all(entry["accuracy"]["final"] > 0.85 for found in summary["methods"].values() for entry in found)
    scenario = (session.folder / "runs" / "mine" / "scenario.yaml").read_text(encoding="utf-8")
    assert "street.csv" in scenario, "the last run has the network of step 5"
    assert (session.folder / "clients.png").stat().st_size > 10_000
    assert "mine" in (session.folder / "mine.html").read_text(encoding="utf-8")
