"""What a run and a plan say about bfloat16 on this processor; they never choose it."""

import pytest
import torch

from edgefl.cost.law import CostModel
from edgefl.experiment import precision_advice as module
from edgefl.experiment import run
from edgefl.experiment.precision_advice import MEASURED_GAIN, estimated_gain, precision_advice
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.registry import MODELS, build_model
from edgefl.planning.planning import plan
from edgefl.scenario import load_scenario
from edgefl.training import engine_spec as matrix_units

from ..small_runs import Advice

LARGE = {
    "model": {"name": "resnet18"},
    "data": {"name": "synthetic", "shape": [3, 32, 32], "clients": 100},
    "training.local.batch": 50,
}


def processor(monkeypatch, *, units, multiplies):
    monkeypatch.setattr(module, "has_bfloat16_matrix_units", lambda: units)
    monkeypatch.setattr(module, "multiplies_bfloat16", lambda: multiplies)


def gain(name, batch=50, **options):
    model = build_model(MODELS[name](**options), (3, 32, 32), 10)
    local = LocalOptions(batch=batch, weight_decay=1e-3, clip_norm=10)
    return estimated_gain(CostModel(model).cost(build_method("fedavg", local), model.depth, batch))


def test_the_estimate_gives_the_measured_gain_and_images_of_the_measured_network():
    assert gain("resnet18") == pytest.approx(MEASURED_GAIN, rel=0.1)
    model = build_model(MODELS["resnet18"](), (3, 32, 32), 10)
    step = CostModel(model).cost(build_method("fedavg", LocalOptions(batch=50)), model.depth, 50)
    products = 6 * step.forward_macs
    rest = sum(
        each.bytes * each.count for each in step.operators if not each.kind.startswith(("convolution", "matrix"))
    )
    seconds = products / 170e9 + rest / 5.4e9
    assert 2 * 50 / seconds == pytest.approx(75, rel=0.1)


def test_a_large_network_on_a_processor_with_units_gets_the_advice_and_keeps_its_precision(monkeypatch):
    processor(monkeypatch, units=True, multiplies=True)
    scenario = load_scenario(
        "5g_100clients", LARGE | {"data": {"name": "synthetic", "shape": [3, 32, 32], "clients": 100}}
    )
    advice = precision_advice(scenario, "cpu")
    assert "about 2.3 times as fast" in advice
    assert "training.engine.precision=bfloat16" in advice
    assert scenario.training.engine.precision == "float32"
    processor(monkeypatch, units=False, multiplies=True)
    assert precision_advice(scenario, "cpu") is None


@pytest.mark.full
def test_bfloat16_without_instructions_for_it_is_mentioned_by_run_and_plan(small, monkeypatch, tmp_path):
    processor(monkeypatch, units=False, multiplies=False)
    scenario = small(training__rounds=1, training__engine={"precision": "bfloat16"})
    noting = Advice()
    run(scenario, out=tmp_path / "run", listeners=[noting])
    assert noting.texts == [plan(scenario).advice]
    assert "several times as long as in float32" in noting.texts[0]
    run(scenario, out=tmp_path / "timed", train=False, listeners=[noting])
    assert len(noting.texts) == 1
    processor(monkeypatch, units=True, multiplies=True)
    assert plan(scenario).advice is None


def test_a_build_without_onednn_has_no_products_in_bfloat16(monkeypatch):
    """There, PyTorch does not even have the operator that says so."""
    monkeypatch.setattr(torch._C, "_has_mkldnn", False)
    monkeypatch.setattr(torch.ops, "mkldnn", None)
    assert not matrix_units.multiplies_bfloat16()
