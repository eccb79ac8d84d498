"""Accuracies on each client, and the final models."""

import json

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from edgefl.data.federated import load_federated
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.experiment.final_models import read_client_models, read_model, write_model
from edgefl.experiment.wiring import skeleton
from edgefl.rerun.verify import verify
from edgefl.training.core import TrainingCore


def test_the_final_model_has_the_accuracy_that_the_summary_gives_it(small, tmp_path):
    scenario = small(methods=["fedavg", "fedbr"])
    folder = run(scenario, out=tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text())["methods"]
    data = load_federated(scenario.data, 0)
    with TrainingCore.of(data, scenario.model.spec, 0) as core:
        for label in ("fedavg", "fedbr"):
            final = read_model(folder / label / "seed-0" / "final.safetensors", skeleton(scenario))
            found = core._own.engine.evaluate(final, {})
            assert found.metric == summary[label][0]["accuracy"]["final"]
        tensors = load_file(folder / "fedavg" / "seed-0" / "final.safetensors")
        assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
        assert {key.split(".")[0] for key in tensors} == {"conv1", "conv2", "fc1", "fc2"}


def test_client_models_are_those_that_the_last_model_is_the_mean_of(small, tmp_path):
    folder = run(small(keep_models="clients"), out=tmp_path / "run")
    model = skeleton(small())
    final = read_model(folder / "fedavg/seed-0/final.safetensors", model)
    clients = read_client_models(folder / "fedavg/seed-0/clients.safetensors", model)
    assert len(clients) == 3
    torch.testing.assert_close(torch.stack(list(clients.values())).mean(dim=0), final)


def test_no_model_is_kept_that_is_not_wanted(small, tmp_path):
    folder = run(small(keep_models="none"), out=tmp_path / "run")
    assert not list(folder.rglob("*.safetensors"))


def test_a_model_of_another_shape_is_refused(small, tmp_path):
    model, other = skeleton(small()), skeleton(small(model={"name": "vgg9"}, data__shape=[1, 32, 32]))
    write_model(torch.zeros(model.layout.size), model, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="the file belongs to another model"):
        read_model(tmp_path / "model.safetensors", other)
    with pytest.raises(UserError, match=r"nothing\.safetensors"):
        read_model(tmp_path / "nothing.safetensors", model)


@pytest.mark.full
def test_the_ensemble_changes_no_training_and_is_logged(small, tmp_path):
    plain = run(small(), out=tmp_path / "plain")
    beside = run(small(evaluation__ensemble={"decay": 0.5}), out=tmp_path / "beside")
    rounds = [pq.read_table(folder / "fedavg/seed-0/rounds.parquet").to_pydict() for folder in (plain, beside)]
    assert rounds[0]["accuracy"] == rounds[1]["accuracy"]
    assert rounds[0]["accuracy_ensemble"] == [None] * 4
    # The ensemble of one model is that model.
    assert rounds[1]["accuracy_ensemble"][0] == rounds[1]["accuracy"][0]
    entry = json.loads((beside / "summary.json").read_text())["methods"]["fedavg"][0]
    assert entry["ensemble"] == {
        "final": rounds[1]["accuracy_ensemble"][-1], "best": max(rounds[1]["accuracy_ensemble"]),
    }  # fmt: skip
    assert verify(beside) == []


PERSONAL = {"data__test": "partitioned", "data__test_images": 80, "training__local__lr": 0.05}


def entry(folder, label="fedavg"):
    return json.loads((folder / "summary.json").read_text())["methods"][label][0]


def test_clients_count_by_their_images_to_the_runs_own_accuracy(small, tmp_path):
    folder = run(small(**PERSONAL), out=tmp_path / "run")
    found = entry(folder)
    assert found["clients"]["cumulative"] == pytest.approx(found["accuracy"]["final"])
    rows = pq.read_table(folder / "fedavg/seed-0/clients.parquet").to_pylist()
    assert [row["client"] for row in rows] == list(range(8))
    assert sum(row["accuracy"] for row in rows) / 8 == pytest.approx(found["clients"]["mean"])
    assert sum(row["tested"] for row in rows) == 80
    assert all(row["accuracy_personalised"] is None for row in rows)
    assert "personalisation" not in found


@pytest.mark.full
def test_calibration_fits_the_model_to_clients_of_two_classes(small, tmp_path):
    calibration = {"kind": "calibration", "epochs": 4, "lr": 0.1, "proximal": 0.01, "self_confidence": True}
    methods = ["fedavg", "fedadc"]
    folder = run(small(**PERSONAL, methods=methods, personalisation=calibration), out=tmp_path / "run")
    again = run(small(**PERSONAL, methods=methods, personalisation=calibration), out=tmp_path / "again")
    assert (folder / "summary.json").read_bytes() == (again / "summary.json").read_bytes()
    for label in methods:
        found = entry(folder, label)
        assert found["personalisation"]["kind"] == "calibration"
        assert found["personalisation"]["mean"] > found["clients"]["mean"]
        rows = pq.read_table(folder / label / "seed-0/clients.parquet").to_pylist()
        assert sum(row["accuracy_personalised"] * row["tested"] for row in rows) / 80 == pytest.approx(
            found["personalisation"]["cumulative"]
        )


def test_personalisation_needs_a_test_part_for_each_client(small):
    with pytest.raises(UserError, match=r"personalisation: .*data\.test must be 'partitioned'"):
        small(personalisation={"kind": "calibration"})
