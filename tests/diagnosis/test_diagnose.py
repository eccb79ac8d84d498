"""The diagnosis of a run's models, against a dense Hessian of the same loss."""

import copy
import json

import pytest
import torch
import torch.nn.functional as F
from torch.func import hessian
from typer.testing import CliRunner

from edgefl.cli.entry import app
from edgefl.diagnosis.diagnose import _batches, diagnose
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.experiment.final_models import read_model
from edgefl.experiment.wiring import skeleton
from edgefl.models.mode import using
from edgefl.scenario.loading import check

from ..small_runs import SMALL


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    data = copy.deepcopy(SMALL) | {"keep_models": "clients", "methods": ["fedavg", "fedprox"]}
    data["model"]["width"] = 1
    data["training"]["rounds"] = 2
    scenario = check(data)
    return scenario, run(scenario, out=tmp_path_factory.mktemp("diagnose") / "run")


@pytest.mark.full
def test_eigenvalue_and_trace_are_those_of_the_dense_hessian(finished):
    scenario, folder = finished
    (found,) = diagnose(folder, methods=["fedavg"], batches=1, device="cpu", plane=True)
    model = skeleton(scenario)
    vector = read_model(folder / "fedavg/seed-0/final.safetensors", model)
    parameters, buffers = model.layout.split(vector.double())
    batches = _batches(scenario, 0, "cpu", 1)
    inputs = torch.cat([batch.inputs for batch in batches]).double()
    labels = torch.cat([batch.labels for batch in batches])

    def loss(point):
        return F.cross_entropy(model.apply_blocks(model.layout.weights(point, buffers), inputs), labels)

    with using(training=False, track=False):
        dense = hessian(loss)(parameters)
    values = torch.linalg.eigvalsh(dense)
    assert found.lambda_max == pytest.approx(float(values[values.abs().argmax()]), rel=0.02)
    off = (dense - torch.diag(torch.diagonal(dense))).square().sum()
    assert abs(found.trace - float(torch.diagonal(dense).sum())) < 5 * float((2 * off / 10).sqrt())
    assert found.landscape.eigenvalues == pytest.approx(values[-2:].flip(0).tolist(), rel=0.01)


@pytest.mark.full
def test_clients_models_are_compared_under_both_readings(finished):
    _, folder = finished
    (found,) = diagnose(folder, methods=["fedprox"], batches=1, device="cpu")
    assert len(found.clients) == 3
    for reading in (found.by_tensor, found.by_parameter):
        assert reading["h_n_pairs"] == pytest.approx(1.5 * reading["h_n"])
        assert reading["h_d"] > reading["h_d_pairs"]
    assert found.by_parameter["h_n"] > 0


@pytest.mark.full
def test_the_command_prints_json_and_draws(finished, tmp_path):
    _, folder = finished
    picture = tmp_path / "plane.png"
    options = ["--batches", "1", "--json", "--device", "cpu", "--method", "fedavg", "--landscape"]
    result = CliRunner().invoke(app, ["diagnose", str(folder), *options, str(picture)])
    assert result.exit_code == 0, result.output
    assert [each["label"] for each in json.loads(result.output)] == ["fedavg"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_run_without_models_and_a_wrong_name_are_refused(small, tmp_path):
    folder = run(small(keep_models="none", training__rounds=1), out=tmp_path / "run")
    with pytest.raises(UserError, match=r"final\.safetensors"):
        list(diagnose(folder, device="cpu"))
    with pytest.raises(UserError, match="did you mean 'fedavg'"):
        list(diagnose(folder, methods=["fedvag"], device="cpu"))
    with pytest.raises(UserError, match="no seed 7"):
        list(diagnose(folder, seeds=[7], device="cpu"))
