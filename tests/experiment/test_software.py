"""What a run records of software and models."""

import json
import sys
from dataclasses import replace
from importlib import metadata
from types import ModuleType

import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file, save_file

from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.experiment import resume, run
from edgefl.experiment.inputs import software_of
from edgefl.methods.fedavg import Mean
from edgefl.record.names import SCENARIO, STATE, SUMMARY
from edgefl.rerun.verify import verify
from edgefl.training.engine_spec import ENGINES

from ..small_runs import Stop, replay, tree


@pytest.fixture
def interrupted(small, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(small(seeds=[0, 1]), out=folder, listeners=[Stop(6)])
    return folder


def test_the_summary_names_the_build_of_torch(small, tmp_path):
    folder = run(small(), out=tmp_path / "run", train=False)
    assert json.loads((folder / SUMMARY).read_text())["software"] == {"torch": metadata.version("torch")}


def test_another_build_of_torch_cannot_continue_a_run(interrupted):
    state = json.loads((interrupted / STATE).read_text())
    state["software"]["torch"] = "1.0.0"
    (interrupted / STATE).write_text(json.dumps(state))
    before = tree(interrupted)
    with pytest.raises(UserError, match=r"the run began with torch 1\.0\.0, found torch [2-9]"):
        resume(interrupted)
    assert tree(interrupted) == before


def test_verify_only_mentions_another_build_of_torch(small, tmp_path, capsys):
    folder = run(small(), out=tmp_path / "run")
    summary = json.loads((folder / SUMMARY).read_text())
    summary["software"]["torch"] = "1.0.0"
    (folder / SUMMARY).write_text(json.dumps(summary))
    assert main(["verify", str(folder)]) == 0
    assert "made with torch 1.0.0, but other versions are installed here" in capsys.readouterr().out


def test_the_package_of_a_plug_in_that_the_scenario_uses_is_recorded(small, monkeypatch):
    """Its objects are of its module, whoever registered it."""
    module = ModuleType("others_parts")
    monkeypatch.setitem(sys.modules, "others_parts", module)
    part = type("Other", (Mean,), {"__module__": "others_parts.servers"})
    monkeypatch.setattr("edgefl.experiment.inputs.packages_distributions", lambda: {"others_parts": ["others-parts"]})
    monkeypatch.setattr(
        "edgefl.experiment.inputs.version", lambda name: "3.1" if name == "others-parts" else metadata.version(name)
    )
    scenario = small()
    from edgefl.experiment import inputs

    own = inputs.recipe_of
    assert "others-parts" not in software_of(scenario)
    monkeypatch.setattr(inputs, "recipe_of", lambda *each: replace(own(*each), server=part()))
    assert software_of(scenario) == {"others-parts": "3.1", "torch": metadata.version("torch")}


@pytest.mark.full
@pytest.mark.parametrize("engine", [name for name, entry in ENGINES if not entry.elsewhere])
def test_an_engine_that_rounds_otherwise_cannot_continue_a_run(interrupted, small, tmp_path, engine):
    file = interrupted / SCENARIO
    file.write_text(file.read_text().replace("kind: auto", f"kind: {engine}"))
    if ENGINES[engine].alike:
        assert not (resume(interrupted) / STATE).exists()
    else:
        with pytest.raises(UserError, match="has changed since the run began"):
            resume(interrupted)


def written(path, *kinds):
    rows = pq.read_table(path / "fedavg" / "seed-0" / "events.parquet").to_pylist()
    return [json.loads(row["detail"]) for row in rows if row["kind"] in kinds]


def test_a_log_names_every_model_and_the_last_one_is_the_file(small, tmp_path):
    folder = run(small(evaluation={"every": 2}), out=tmp_path / "run")
    models = [found["model"] for found in written(folder, "run", "aggregation")]
    assert len(set(models)) == 5
    assert [found["before"] for found in written(folder, "aggregation")] == models[:-1]
    assert [found["model"] for found in written(folder, "evaluation")] == models[2::2]
    assert verify(folder) == []
    assert written(replay(folder, {"network.topology.latency": "9 ms"}, tmp_path / "near"), "aggregation") == written(
        folder, "aggregation"
    )

    file = folder / "fedavg" / "seed-0" / "final.safetensors"
    tensors = load_file(file)
    name = sorted(tensors)[0]
    tensors[name].view(-1)[0] += 1e-3
    save_file(tensors, file)
    assert verify(folder) == ["fedavg, seed 0: final.safetensors is not the model from the last aggregation"]
