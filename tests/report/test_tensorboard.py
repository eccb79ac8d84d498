"""TensorBoard's scalars are the rounds' own figures, with virtual time and bytes as steps."""

from __future__ import annotations

import sys

import pytest

from edgefl.cli.entry import main
from edgefl.errors import UserError
from edgefl.report.tensorboard import scalars_of, write_tensorboard


def test_steps_are_milliseconds_bytes_and_rounds_and_values_those_of_the_rounds(small_run):
    found = list(scalars_of(small_run, "fedbr", 1))
    table = small_run.rounds_of("fedbr", 1).to_pylist()
    by = {tag: [each for each in found if each.tag == tag] for tag in {each.tag for each in found}}
    bytes = 0
    for number, row in enumerate(table):
        bytes += row["bytes_down"] + row["bytes_up"]
        assert by["by bytes/accuracy"][number][1:] == (bytes, row["seconds"], row["accuracy"])
        assert by["by milliseconds/loss"][number].step == round(1000 * row["seconds"])
        assert by["by round/accuracy_ema"][number].step == row["round"]
    assert by["by round/joules"][-1].value == pytest.approx(small_run.results["fedbr"][1].joules)


def test_what_was_not_evaluated_is_left_out(late_run):
    tags = {scalar.tag for scalar in scalars_of(late_run, "fedavg", 0)}
    assert "by bytes/accuracy" not in tags
    assert "by bytes/joules" in tags


def test_without_tensorboard_the_message_says_how_to_get_it(small_run, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    assert main(["report", str(small_run.path), "--tensorboard", str(tmp_path / "board")]) == 2
    assert "edgefl[tensorboard]" in capsys.readouterr().err
    assert not (tmp_path / "board").exists()


def test_tensorboard_reads_back_what_was_written(small_run, late_run, tmp_path):
    reading = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard, an optional extra, is missing"
    )
    folders = write_tensorboard([small_run, late_run], tmp_path)
    assert len(folders) == 8
    read = reading.EventAccumulator(str(tmp_path / "small" / "fedadc" / "seed-1"), size_guidance={"scalars": 0})
    read.Reload()
    expected = [scalar for scalar in scalars_of(small_run, "fedadc", 1) if scalar.tag == "by bytes/accuracy"]
    found = read.Scalars("by bytes/accuracy")
    assert [each.step for each in found] == [scalar.step for scalar in expected]
    assert [each.value for each in found] == pytest.approx([scalar.value for scalar in expected])
    assert [each.wall_time for each in found] == [scalar.seconds for scalar in expected]
    with pytest.raises(UserError, match="expected a folder without event files"):
        write_tensorboard([small_run, late_run], tmp_path)
