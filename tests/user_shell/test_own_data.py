"""docs/own-data.md: what it shows is enough to train, from an empty folder."""

from __future__ import annotations

import json

from .given import Given
from .pages import ROOT, commands
from .session import Session


def test_the_commands_of_the_page_train_on_the_data_of_the_page(tmp_path):
    page = ROOT / "docs" / "own-data.md"
    (tmp_path / "given").mkdir()
    (tmp_path / "shell").mkdir()
    session = Session(tmp_path / "shell", full=True)
    wanted = [command for command in commands(page) if not command.is_a_name]
    Given(tmp_path / "given").to(session, wanted)
    for command in wanted:
        done = session.run(command.text)
        assert done.failure is None, done.failure
    for run in ("tables", "wine"):
        summary = json.loads((session.folder / "runs" / run / "summary.json").read_text())
        for method in ("fedavg", "scaffold"):
            assert summary["methods"][method][0]["accuracy"]["final"] > 0.6
    summary = json.loads((session.folder / "runs" / "estimates" / "summary.json").read_text())
    assert summary["methods"]["fedavg"][0]["metric"]["final"] < 0.9  # 1 without a model
