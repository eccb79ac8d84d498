"""Every method and engine on a rehearsed CUDA device: all tensors are on it, and the numbers are the CPU's."""

import math

import pytest
import torch

from edgefl.data.federated import load_federated
from edgefl.data.sets.synthetic import Synthetic
from edgefl.experiment import resume, run
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.recipe import METHODS
from edgefl.models.registry import MODELS
from edgefl.rerun.verify import verify
from edgefl.scenario import with_overrides
from edgefl.scenario.loading import check
from edgefl.training.core import TrainingCore
from edgefl.training.engine_spec import EngineSpec
from edgefl.training.job import JobId, TrainingJob
from edgefl.training.job_task import ClientData

from ..small_runs import SMALL, Stop, tree
from .conftest import RESIDUAL, few_of, jobs_of, residual_model, tiny_model, train_round
from .fake_cuda import CUDA, fake_cuda

LOCAL = LocalOptions(batch=8, lr=0.02, weight_decay=1e-3, clip_norm=10)


def two_rounds(device, name, *, engine="sequential", room=math.inf):
    data = load_federated(
        Synthetic(clients=2, shape=(1, 6, 6), classes=3, train=32, test_images=20), 0, device, room=room
    )
    method, model = build_method(name, LOCAL), residual_model() if name in RESIDUAL else tiny_model()
    with TrainingCore(ClientData(data), model, 0, device, engine=engine) as core:
        learner = core.learner(method)
        for round in range(2):
            train_round(learner, jobs_of(core, method, round, range(1 if name == "central" else 2)))
        found = learner.evaluate(2)
        learner.restore(*learner.snapshot())
        return learner.model(2).cpu(), found


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("fedavg", "sequential"),
        *few_of([(name, "batched") for name in METHODS.names()], [("fedavg", "batched"), ("fedbr", "batched")]),
    ],
)
def test_every_method_trains_on_the_device_with_the_numbers_of_the_cpu(name, engine, monkeypatch):
    expected, wanted = two_rounds("cpu", name)
    with fake_cuda(monkeypatch) as device:
        found, evaluated = two_rounds(CUDA, name, engine=engine)
        assert device.copies
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-3)
    assert evaluated.loss == pytest.approx(wanted.loss, rel=1e-2)


@pytest.mark.full
@pytest.mark.parametrize("spec", [{"kind": "sequential"}, {"kind": "batched"}], ids=str)
def test_data_in_main_memory_train_the_same_model_on_the_device(spec, monkeypatch):
    with fake_cuda(monkeypatch):
        here, there = (two_rounds(CUDA, "fedavg", engine=EngineSpec(**spec), room=room)[0] for room in (math.inf, 0))
    assert torch.equal(here, there)


WORLDS = {
    "codecs, ensemble and personalisation": {
        "methods": [
            {
                "method": "fedavg",
                "as": "rounded",
                "codec": {"up": {"kind": "quantise", "bits": 4, "rounding": "stochastic"}},
            },
            {"method": "fedadc", "as": "sparse", "codec": {"up": {"kind": "top_k", "fraction": 0.1}}},
            {"method": "fedgkd", "as": "cast", "codec": {"down": "cast"}},
        ],
        "evaluation": {"ensemble": {"decay": 0.8}},
        "data.test": "partitioned",
        "personalisation": {"kind": "calibration", "epochs": 1, "lr": 0.1, "self_confidence": True},
    },
    "asynchronous, with blocks and losses that the server asks for": {
        "methods": ["fedbr", "scaffold"],
        "protocol": {"kind": "asynchronous", "buffer": 2, "concurrency": 4},
        "training.selection": "oort",
    },
    "late clients": {
        "methods": ["feddyn", "moon"],
        "protocol": {"deadline": "80 ms", "late": "partial"},
        "training.selection": "power_of_choice",
    },
}


@pytest.mark.full
@pytest.mark.parametrize(("world", "engine"), list(zip(WORLDS, ("sequential", "batched", "batched"), strict=True)))
def test_whole_runs_go_through_on_the_device(world, engine, monkeypatch, tmp_path):
    changes = {**WORLDS[world], "training.engine": engine, "training.rounds": 2, "keep_models": "clients"}
    with fake_cuda(monkeypatch):
        folder = run(with_overrides(check(SMALL), changes), out=tmp_path / "run", device="cuda")
    assert verify(folder) == []


@pytest.mark.full
def test_a_run_is_resumed_on_the_device(monkeypatch, tmp_path):
    scenario = with_overrides(check(SMALL), {"methods": ["scaffold"]})
    with fake_cuda(monkeypatch):
        whole = run(scenario, out=tmp_path / "whole", device="cuda")
        with pytest.raises(KeyboardInterrupt):
            run(scenario, out=tmp_path / "run", device="cuda", listeners=[Stop(3)])
        assert tree(resume(tmp_path / "run")) == tree(whole)


def traffic(learner, device, clients):
    """How often Python reads from the device, and how often it copies, while a round is trained and aggregated."""
    jobs = [TrainingJob(JobId("m", 0, client, clients), learner.version, 0, 4, 4, None) for client in range(clients)]
    before = device.reads, device.copies
    for job in jobs:
        learner.submit(job)
    learner.version = learner.aggregate(learner.version, [job.id for job in jobs], 0)
    return device.reads - before[0], device.copies - before[1]


@pytest.mark.full
@pytest.mark.parametrize("augment", ["none", "rotate_crop_flip"])
def test_a_round_of_more_clients_does_not_use_the_link_to_the_device_more_often(augment, monkeypatch):
    """Their images and random numbers are uploaded at once; losses are read at once, and distances from the model."""
    with fake_cuda(monkeypatch) as device:
        data = load_federated(
            Synthetic(clients=8, shape=(3, 16, 16), train=256, test_images=40, augment=augment), 0, CUDA
        )
        with TrainingCore.of(data, MODELS["cnn"].model_validate({"width": 2}), 0, engine="auto") as core:
            learner = core.learner(build_method("fedavg", LOCAL))
            learner.version = 0
            assert core.engine_name == "batched"
            traffic(learner, device, 2)  # records steps
            few, many = (traffic(learner, device, clients) for clients in (2, 8))
            assert min(few) > 0
    assert few == many
