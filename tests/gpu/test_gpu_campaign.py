"""The campaign for GPUs, rehearsed on the CPU: a run that is interrupted goes on, and a failure stops no other part."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgefl.record.summary import read_summary

sys.path.insert(0, str(Path(__file__).parent))
from gpu_campaign import REPOSITORY, advance, campaign, main, other_campaign, shown
from gpu_campaign_parts import PARTS, PaperRow, Place

ROW = PaperRow("papers/fedadc/table1_cifar10_s2_c10", "fedadc", 0)


@dataclass(frozen=True)
class Broken:
    """A part that raises."""

    name: str = PARTS[0].name
    aim: str = "none"

    def command(self, place):
        return ["broken"]

    def run(self, place):
        raise RuntimeError("a device fault")


@pytest.mark.release
def test_an_interrupted_row_goes_on_to_the_model_of_an_uninterrupted_one(tmp_path):
    whole = Place(tmp_path / "whole", "cpu", tiny=True)
    cut = Place(tmp_path / "cut", "cpu", tiny=True, over=lambda: ROW.rounds(cut) > 0)
    whole.folder.mkdir()
    cut.folder.mkdir()
    first = advance(ROW, cut)
    assert first["state"] == "unfinished"
    assert 0 < ROW.rounds(cut) < 40
    second = advance(ROW, Place(cut.folder, "cpu", tiny=True))
    assert (second["state"], second["slices"]) == ("done", 2)
    assert second["seconds"] > first["seconds"]
    assert advance(ROW, whole)["figure"] == second["figure"]
    assert "78.6 %" in second["figure"]
    assert read_summary(ROW.folder(cut) / "summary.json") == read_summary(ROW.folder(whole) / "summary.json")
    assert advance(ROW, cut) == second


@pytest.mark.full
def test_a_part_that_fails_is_in_the_table_and_the_others_go_on(tmp_path):
    missing = PaperRow("papers/fedadc/table1_cifar10_s2_c10", "fedprox", 0)
    place = Place(tmp_path, "cpu", tiny=True, changes=("training.rounds=1", "model.name=none"))
    found = campaign(place, [Broken(), missing], lambda: lambda: False)["parts"]
    assert list(found) == [Broken.name, missing.name]
    assert found[Broken.name]["reason"] == "RuntimeError: a device fault"
    assert "'none'" in found[missing.name]["reason"]
    table = (tmp_path / "results.md").read_text()
    assert table.count("**failed**") == 2
    assert json.loads((tmp_path / "results.json").read_text())["parts"] == found


@pytest.mark.full
def test_a_rehearsal_is_not_continued_as_a_campaign_and_its_commands_name_no_folder_of_the_machine(tmp_path):
    rehearsal = Place(tmp_path, "cpu", tiny=True)
    campaign(rehearsal, [Broken()], lambda: lambda: False)
    assert other_campaign(rehearsal) is None
    assert "holds a rehearsal on CPU" in other_campaign(Place(tmp_path, "cpu", tiny=False))
    for part in PARTS:
        command = shown(part.command(rehearsal), rehearsal)
        assert command.startswith(("python -m ", "python tests/benchmarks/"))
        assert str(tmp_path) not in command
        assert str(REPOSITORY) not in command
    assert "--out runs/" in shown(ROW.command(rehearsal), rehearsal)


@pytest.mark.release
def test_the_whole_campaign_goes_through_in_its_tiny_form(tmp_path):
    assert main([str(tmp_path), "--tiny"]) == 0
