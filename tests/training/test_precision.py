"""Products in bfloat16: another rounding, the same everywhere, and nothing else in fewer bits."""

from __future__ import annotations

import pytest
import torch

from edgefl.data.federated import load_federated
from edgefl.data.sets.synthetic import Synthetic
from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.local_options import LocalOptions
from edgefl.models.registry import MODELS
from edgefl.training.choice import check_precision
from edgefl.training.core import TrainingCore
from edgefl.training.device import exact_arithmetic
from edgefl.training.engine_spec import EngineSpec
from edgefl.training.job import JobId, TrainingJob

CUDA = torch.device("cuda")
SHAPE = (3, 16, 16)

APART = 0.25
"""How far two rounds in bfloat16 may end from where they end in float32, over the way that they went. An operand is
rounded by up to 1/256, several products follow one another, and max-pooling takes another of two pixels that come out
alike, so the whole is about 0.1."""

EVERY_OBJECTIVE = ["fedavg", "fedprox", "fedalign", "fedadc", "fedadc+", "fedbr", "feddyn", "fedgkd", "fedmlb", "fedrs",
                   "fitnet", "kd", "mixup", "moon", "ntd", "scaffold"]  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return load_federated(Synthetic(clients=4, shape=SHAPE, train=128, test_images=50), 0)


def two_rounds(data, entry, engine, precision, **options):
    """The first model, the last one, and the numbers of the last round."""
    method = build_method(entry, LocalOptions(batch=16, lr=0.05, weight_decay=1e-3, clip_norm=10))
    spec = EngineSpec(kind=engine, precision=precision)
    with TrainingCore.of(data, MODELS["cnn"](**options), 0, engine=spec, workers=2) as core:
        learner = core.learner(method)
        first, depth = learner.model(0).clone(), method.objective.adapt(core.model).depth
        for round in range(2):
            jobs = []
            for client in range(4):
                before = JobId("m", 0, client, round - 1) if method.state is not None and round else None
                jobs.append(TrainingJob(JobId("m", 0, client, round), round, round, depth, 2, before))
            for job in jobs:
                learner.submit(job)
            learner.aggregate(round, [job.id for job in jobs], round)
        return first, learner.model(2), [learner.feedback(job.id) for job in jobs]


def apart(one, other):
    """The distance of two last models over the way from the first model."""
    return float(torch.linalg.vector_norm(one[1] - other[1]) / torch.linalg.vector_norm(one[1] - one[0]))


@pytest.mark.parametrize("entry", EVERY_OBJECTIVE)
def test_every_objective_trains_in_bfloat16_close_to_float32_and_alike_in_every_engine(data, entry):
    exact = two_rounds(data, entry, "sequential", "float32")
    rounded = two_rounds(data, entry, "sequential", "bfloat16")
    assert rounded[1].dtype == torch.float32
    assert torch.isfinite(rounded[1]).all()
    assert 1e-4 < apart(exact, rounded) < APART
    for here, there in zip(exact[2], rounded[2], strict=True):
        assert there.loss == pytest.approx(here.loss, rel=0.05)
    side_by_side = two_rounds(data, entry, "parallel", "bfloat16")
    assert torch.equal(rounded[1], side_by_side[1])
    assert rounded[2] == side_by_side[2]
    assert apart(exact, two_rounds(data, entry, "batched", "bfloat16")) < APART


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_norms_keep_their_statistics_in_float32_side_by_side_too(data, norm):
    exact = two_rounds(data, "fedavg", "sequential", "float32", norm=norm)
    for engine in ("sequential", "batched"):
        rounded = two_rounds(data, "fedavg", engine, "bfloat16", norm=norm)
        assert 1e-4 < apart(exact, rounded) < APART


def test_tf32_belongs_to_cuda():
    check_precision("tf32", CUDA)
    with pytest.raises(UserError, match="tf32 is a precision of CUDA devices and training runs on cpu"):
        check_precision("tf32", torch.device("cpu"))


def test_tf32_holds_for_training_alone_and_is_restored():
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    with exact_arithmetic(CUDA, tf32=True):
        assert (matmul.allow_tf32, cudnn.allow_tf32) == (True, True)
        with exact_arithmetic(CUDA):
            assert (matmul.allow_tf32, cudnn.allow_tf32) == (False, False)
    assert (matmul.allow_tf32, cudnn.allow_tf32) == before
