"""Runs of models that are pretrained, or read characters."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from edgefl.cli.entry import main
from edgefl.errors import UserError
from edgefl.experiment import resume, run
from edgefl.rerun.verify import verify
from edgefl.scenario import load_scenario
from edgefl.yaml_file import dump_yaml

from ..small_runs import SMALL, Stop, tree


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
def test_changed_weights_end_a_resumption(folder):
    scenario, weights = load_scenario(folder / "my.yaml"), folder / "mine.safetensors"
    expected = tree(run(scenario, out=folder / "expected"))
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=folder / "run", listeners=[Stop(2)])
    content = weights.read_bytes()
    save_file({name: tensor + 1 for name, tensor in load_file(weights).items()}, weights)
    with pytest.raises(UserError, match="has changed since the run began") as refused:
        resume(folder / "run")
    assert refused.value.file == str(weights)
    weights.write_bytes(content)
    assert tree(resume(folder / "run")) == expected


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


@pytest.mark.full
def test_speakers_learn_what_comes_next(small, tmp_path):
    folder = tmp_path / "data" / "tinyshakespeare"
    folder.mkdir(parents=True)
    speeches = [f"S{number}:\n" + ("to be or not to be " * (12 + number)) for number in range(4)]
    (folder / "input.txt").write_text("\n\n".join(speeches), encoding="utf-8")
    scenario = small(
        data={
            "name": "shakespeare", "root": str(tmp_path / "data"), "clients": 4, "window": 12, "stride": 1,
            "test": "partitioned",
        },
        model={"name": "char_transformer", "width": 16, "heads": 2, "layers": 1},
        training__local__lr=0.2,
        methods=["fedavg", "fedbr"],
        personalisation={"kind": "calibration"},
    )  # fmt: skip
    first = run(scenario, out=tmp_path / "run")
    summary = json.loads((first / "summary.json").read_text())["methods"]
    for label, (entry,) in summary.items():
        assert entry["stop"]["reason"] == "rounds", label
        assert 0 <= entry["personalisation"]["mean"] <= 1
    assert summary["fedavg"][0]["accuracy"]["best"] > 0.3
    timed = run(scenario, out=tmp_path / "timed", train=False)
    seconds = [
        json.loads((each / "summary.json").read_text())["methods"]["fedavg"][0]["seconds"] for each in (first, timed)
    ]
    assert seconds[0] == seconds[1]
