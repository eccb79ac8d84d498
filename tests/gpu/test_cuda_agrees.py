"""Training and codecs on a CUDA device, held to the CPU's numbers. Bits differ: kernels add in other orders."""

import math

import numpy as np
import pytest
import torch

from edgefl.data.federated import load_federated
from edgefl.data.sets.synthetic import Synthetic
from edgefl.methods.build import build_method
from edgefl.methods.codecs.choice import codec
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.registry import MODELS
from edgefl.training.accelerator import Replay
from edgefl.training.core import TrainingCore
from edgefl.training.engine_spec import EngineSpec
from edgefl.training.job import JobId, TrainingJob

from .device import DEVICE, REHEARSAL, THERE_IS_NONE

pytestmark = [pytest.mark.gpu, THERE_IS_NONE]

METHODS = ["fedavg", "fedprox", "fedalign", "fedadc", "fedbr", "fedmlb"]
CASES = [(entry, "cnn", {}) for entry in METHODS]
CASES += [({"method": "fedavg", "local": {"optimizer": "adamw", "lr": 0.002}}, "cnn", {})]
CASES += [(entry, "resnet18", {"norm": norm}) for entry in ("fedavg", "fedbr") for norm in ("group", "batch")]


def two_rounds(device, entry, model, options, *, rounds=2, engine="sequential", steps=2, room=math.inf):
    data = load_federated(Synthetic(clients=4, shape=(3, 16, 16), train=128, test_images=100), 0, device, room=room)
    local = LocalOptions(batch=16, lr=0.02, weight_decay=1e-3, clip_norm=10)
    method = build_method(entry, local)
    stale = method.state is not None and "previous" in method.state.vectors
    with TrainingCore.of(data, MODELS[model].model_validate(options), 0, engine=engine) as core:
        learner = core.learner(method)
        for round in range(rounds):
            jobs = []
            for client in range(4):
                before = JobId("m", 0, client, round - 1) if method.state is not None and round else None
                alpha = 2 if before and stale else core.model.depth
                jobs.append(TrainingJob(JobId("m", 0, client, round), round, round, alpha, steps, before))
            for job in jobs:
                learner.submit(job)
            learner.aggregate(round, [job.id for job in jobs], round)
        said = [learner.feedback(job.id) for job in jobs]
        return learner.model(rounds).cpu(), said, learner.evaluate(rounds)


@pytest.mark.parametrize(("entry", "model", "options"), CASES, ids=str)
def test_two_rounds_agree_with_the_cpu(entry, model, options):
    one = two_rounds("cpu", entry, model, options)
    other = two_rounds(DEVICE, entry, model, options)
    torch.testing.assert_close(other[0], one[0], rtol=1e-2, atol=1e-3)
    for here, there in zip(one[1], other[1], strict=True):
        assert tuple(there) == pytest.approx(tuple(here), rel=2e-2, abs=1e-4)
    assert other[2].loss == pytest.approx(one[2].loss, rel=1e-2)
    assert other[2].metric == pytest.approx(one[2].metric, abs=0.03)


@pytest.mark.parametrize("entry", ["fedavg", "fedalign", "fedbr"])
def test_a_device_repeats_itself_to_the_last_bit(entry):
    one, other = (two_rounds(DEVICE, entry, "cnn", {}) for _ in range(2))
    assert torch.equal(one[0], other[0])
    assert one[1:] == other[1:]


@pytest.mark.parametrize("entry", [*METHODS, "moon", "scaffold"])
def test_clients_side_by_side_come_to_what_they_come_to_alone(entry):
    one = two_rounds(DEVICE, entry, "cnn", {})
    other = two_rounds(DEVICE, entry, "cnn", {}, engine=EngineSpec(kind="batched"))
    torch.testing.assert_close(other[0], one[0], rtol=1e-2, atol=1e-3)
    assert other[2].loss == pytest.approx(one[2].loss, rel=1e-2)


@pytest.mark.skipif(REHEARSAL, reason="a CPU has no graphs")
@pytest.mark.parametrize("entry", [*METHODS, "moon"])
def test_a_replayed_graph_gives_the_bits_of_the_step_that_it_recorded(entry, monkeypatch):
    """Eight steps a round: the second is recorded, and the second round finds the recording of the first."""
    recorded = []
    capture = Replay._recorded

    def noting(self):
        recorded.append(capture(self))
        return recorded[-1]

    monkeypatch.setattr(Replay, "_recorded", noting)
    engine = EngineSpec(kind="batched")
    replayed = two_rounds(DEVICE, entry, "cnn", {}, engine=engine, steps=8)
    assert recorded
    assert None not in recorded
    monkeypatch.setattr(Replay, "_recorded", lambda self: None)
    direct = two_rounds(DEVICE, entry, "cnn", {}, engine=engine, steps=8)
    assert torch.equal(replayed[0], direct[0])
    assert replayed[1:] == direct[1:]


@pytest.mark.parametrize("engine", ["sequential", "batched"])
def test_data_that_stay_in_main_memory_train_the_same_model(engine):
    here = two_rounds(DEVICE, "fedavg", "cnn", {}, engine=engine)
    there = two_rounds(DEVICE, "fedavg", "cnn", {}, engine=engine, room=0)
    assert torch.equal(here[0], there[0])
    assert here[1:] == there[1:]


@pytest.mark.parametrize(
    "said",
    [
        "none",
        "cast",
        {"kind": "cast", "to": "bfloat16"},
        "quantise",
        {"kind": "quantise", "bits": 4, "scale": "channel", "rounding": "stochastic"},
        {"kind": "top_k", "fraction": 0.01},
        {"kind": "top_k", "fraction": 0.2},
    ],
    ids=str,
)
def test_a_codec_gives_what_it_gives_on_the_cpu(said):
    one = codec(said)
    tensor = torch.randn(33, 5, 3, 3, generator=torch.Generator().manual_seed(1))
    here = one.encode(tensor, np.random.default_rng(0))
    there = one.encode(tensor.to(DEVICE), np.random.default_rng(0))
    assert {name: part.dtype for name, part in here.items()} == {name: part.dtype for name, part in there.items()}
    for name, part in here.items():
        torch.testing.assert_close(there[name].cpu(), part)
    torch.testing.assert_close(one.decode(there, tensor.shape).cpu(), one.decode(here, tensor.shape))
