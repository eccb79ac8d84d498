"""Secure aggregation, ε and steps of DP-SGD against Flower, Opacus and dp-accounting, where their figures are."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from edgefl.cost import CostModel
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.registry import build_model
from edgefl.privacy.accountants import Mechanism, epsilon, noise_for, phases_of
from edgefl.privacy.differential_privacy import DifferentialPrivacy
from edgefl.privacy.messages import formulas
from edgefl.privacy.secure_aggregation import SecureAggregation
from edgefl.privacy.training import PrivateTraining
from edgefl.record.summary import read_run
from edgefl.scenario.components import MODEL_SECTION
from edgefl.scenario.named_step import read_task

pytestmark = pytest.mark.extras

FILE = Path(os.environ.get("EDGEFL_DATA", "none")).parent / "oracles" / "privacy" / "given.json"
CASES = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}


def cases(section):
    found = [pytest.param(case, id=case["id"]) for case in CASES.get(section, ())]
    return pytest.mark.parametrize("case", found or [pytest.param({}, marks=pytest.mark.skip("there is no oracle"))])


NETWORKS = {
    "mlp": ("nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)", (1, 28, 28), 10, "classification"),
    "cnn": (
        "nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2), "
        "nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(), nn.MaxPool2d(2), "
        "nn.Flatten(), nn.Linear(2048, 10)",
        *((3, 32, 32), 10, "classification"),
    ),
    "words": (
        "nn.Embedding(1000, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1000)",
        (20,),
        1000,
        "language_model",
    ),
}


def python_model(folder, layers):
    path = folder / "net.py"
    path.write_text(f"from torch import nn\n\n\ndef net():\n    return nn.Sequential({layers})\n", encoding="utf-8")
    return {"python": f"{path}:net"}


@cases("secagg_flower")
def test_messages_and_work_are_those_of_flower(case, small, tmp_path, any_python_file):
    from edgefl.experiment import run

    side, losses = round(case["parameters_float32"] ** 0.5), {}
    for client, when in case["lost"].items():
        losses.setdefault(when.rsplit(" ", 1)[1], []).append(int(client))
    secure = {"kind": "secagg_plus", "neighbours": case["num_shares"], "threshold": case["reconstruction_threshold"]}
    scenario = small(
        data={"name": "synthetic", "shape": [1, 1, side], "classes": side, "train": 10 * side, "test": side}
        | {"clients": case["clients"]},
        model=python_model(tmp_path, f"nn.Flatten(), nn.Linear({side}, {side}, bias=False)"),
        training={"rounds": 1, "cohort": case["clients"], "local": {"steps": 1, "batch": 2}},
        privacy={"secure_aggregation": {**secure, "flower": True, "losses": losses}},
    )
    (result,) = read_run(run(scenario, out=tmp_path / "run", train=False))[1].methods["fedavg"]
    found, expected = result.secure_aggregation, case["expected"]
    assert (found["failed"] == 0, found["round_trips"]) == (expected["finished"], expected["round_trips"])
    for stage, known in zip(found["stages"], expected["stages"], strict=False):
        for way in ("down", "up"):
            assert stage[f"messages_{way}"] == known[f"messages_{way}"]
            own, flowers = stage[f"{way}_bytes_each"], known[f"{way}_bytes_each"]
            assert len(own) == len(flowers) or case["id"] == "n5-unequal-weights"  # which differ by one byte
            assert [own[0], own[-1]] == pytest.approx([flowers[0], flowers[-1]], abs=8) if flowers else not own
    for name in ("public_key", "encrypted_share_pair"):
        assert found["parts"][name] == expected["parts"].get(name, found["parts"][name])
    assert found["parts"]["masked_vector"] == expected["parts"].get("masked_arrays", 80264)
    for who in ("work_of_a_client", "work_of_the_server"):
        known = {name: count for name, count in expected[who].items() if name != "encryptions"}
        assert {name: found[who][name] for name in known} == known


@cases("secagg_formulas")
def test_bytes_are_those_of_the_papers(case):
    options = {"kind": case["kind"]}
    if case["kind"] == "lightsecagg":
        options |= {"threshold": case["users"] - case["dropouts"], "colluding": case["privacy"]}
    else:
        options |= {name: case[name] for name in ("bits", "key_bits", "share_bits")}
    found = formulas(SecureAggregation(**options), case["users"], case["entries"])
    assert found == {name: value for name, value in case["expected"].items() if name != "published_expansion"}


@cases("epsilon")
def test_epsilon_is_that_of_the_accountants(case):
    pytest.importorskip("dp_accounting")
    pytest.importorskip("opacus")
    phases = phases_of(
        (Mechanism(each["noise_multiplier"], each["sampling_rate"]), each["steps"]) for each in case["phases"]
    )
    known = {"rdp": ("rdp_dp_accounting", 1e-9), "pld": ("pld_dp_accounting", 1e-6), "prv": ("prv_opacus", 1e-6)}
    for accountant, (name, tolerance) in known.items():
        assert epsilon(phases, case["delta"], accountant) == pytest.approx(case["expected"][name], abs=tolerance)
    if fixed := case["expected"].get("rdp_fixed_cohort_replace_one"):
        cohorts = phases_of([(Mechanism(1.0, 0.1, of=1000), 100)])
        assert epsilon(cohorts, case["delta"], "rdp") == pytest.approx(fixed, abs=1e-9)


@cases("noise_multiplier")
def test_noise_is_the_least_with_an_epsilon(case):
    pytest.importorskip("dp_accounting")
    for accountant, name in (("rdp", "rdp_dp_accounting"), ("pld", "pld_dp_accounting")):

        def loss(noise, accountant=accountant):
            mechanism = Mechanism(noise, case["sampling_rate"])
            return epsilon(((mechanism, case["steps"]),), case["delta"], accountant)

        assert noise_for(case["target_epsilon"], loss) == pytest.approx(case["expected"][name], rel=2e-4)


@cases("dp_sgd_step")
def test_steps_have_the_flops_and_the_peak_of_opacus(case, tmp_path, any_python_file):
    layers, shape, classes, task = NETWORKS[case["id"].split("-")[0]]
    spec = MODEL_SECTION.read(python_model(tmp_path, layers), "model").spec
    tokens = task == "language_model"
    costs = CostModel(build_model(spec, shape, classes, read_task(task), numbers=False, tokens=tokens))
    plain, batch = build_method("fedavg", LocalOptions(batch=case["batch"])), case["batch"]
    assert costs.product_flops(plain, costs.model.depth, batch) == case["expected"]["plain"]["flops"]
    for step in ("per_sample", "fast", "ghost"):
        dp = DifferentialPrivacy(kind="example", clip=1.0, noise=1.0, delta=1e-5, step=step)
        private = replace(plain, private=PrivateTraining(None, dp, None, 1, 1, batch))
        known = case["expected"][step]
        assert costs.product_flops(private, costs.model.depth, batch) == known["flops"]
        peak = costs.cost(private, costs.model.depth, batch).peak_memory_bytes
        assert peak == pytest.approx(known["peak_bytes"], rel=0.1)
