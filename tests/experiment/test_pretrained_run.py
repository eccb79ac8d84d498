"""Runs of models that are pretrained, or read characters."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from edgefl.cli.entry import main
from edgefl.experiment import run
from edgefl.rerun.verify import verify
from edgefl.scenario import load_scenario
from edgefl.yaml_file import dump_yaml

from ..small_runs import SMALL


@pytest.fixture
def folder(tmp_path, small):
    """A folder with a run's final model, and a scenario that starts from it by a relative path."""
    first = run(small(), out=tmp_path / "first")
    (final,) = first.rglob("final.safetensors")
    final.rename(tmp_path / "mine.safetensors")
    model = {**SMALL["model"], "weights": "mine.safetensors"}
    (tmp_path / "my.yaml").write_text(dump_yaml({**SMALL, "name": "second", "model": model}))
    return tmp_path


def test_a_run_begins_where_another_ended(folder):
    scenario = load_scenario(folder / "my.yaml", ["training.local.lr=1e-9"])
    out = run(scenario, out=folder / "run")
    (final,) = out.rglob("final.safetensors")
    before, after = load_file(folder / "mine.safetensors"), load_file(final)
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor, rtol=0, atol=1e-6)
    assert "model.spec.weights" in json.loads((out / "summary.json").read_text())["inputs"]
    assert verify(out) == []


@pytest.mark.full
def test_a_mapping_names_the_file_too_and_where_it_lies_is_no_part_of_the_run(folder):
    model = {**SMALL["model"], "weights": {"file": "mine.safetensors", "skip": []}}
    (folder / "other").mkdir()
    (folder / "other" / "mine.safetensors").write_bytes((folder / "mine.safetensors").read_bytes())
    summaries = []
    for place in (folder, folder / "other"):
        (place / "mapping.yaml").write_text(dump_yaml({**SMALL, "model": model}))
        out = run(load_scenario(place / "mapping.yaml"), out=place / "mapping", train=False)
        summaries.append((out / "summary.json").read_bytes())
    assert summaries[0] == summaries[1]
    assert "model.spec.weights.file" in json.loads(summaries[0])["inputs"]


def test_wrong_weights_are_refused_before_anything_is_written(folder, capsys):
    save_file({"head": torch.zeros(1)}, folder / "mine.safetensors")
    assert main(["simulate", str(folder / "my.yaml"), "--out", str(folder / "run")]) == 2
    told = capsys.readouterr().err
    assert "my.yaml: model.weights: " in told
    assert "mine.safetensors: expected the tensor 'conv1." in told
    assert not (folder / "run").exists()
