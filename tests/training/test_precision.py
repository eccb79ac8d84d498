"""Products in bfloat16: another rounding, the same everywhere, and nothing else in fewer bits."""

from __future__ import annotations

import pytest
import torch

from edgefl.data.federated import load_federated
from edgefl.data.sets.synthetic import Synthetic
from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.registry import MODELS
from edgefl.training.core import TrainingCore
from edgefl.training.device import exact_arithmetic
from edgefl.training.engine_spec import EngineSpec, check_precision

from .conftest import few_of, train_rounds

CUDA = torch.device("cuda")
SHAPE = (3, 16, 16)

APART = 0.25
"""How far two rounds in bfloat16 may end from where they end in float32, over the way that they went. An operand is
rounded by up to 1/256, several products follow one another, and max-pooling takes another of two pixels that come out
alike, so the whole is about 0.1."""

OBJECTIVES = ["fedalign", "fedbr", "kd", "mixup", "moon", "scaffold"]


@pytest.fixture(scope="module")
def data():
    return load_federated(Synthetic(clients=6, shape=SHAPE, train=96, test_images=50), 0)


def two_rounds(data, entry, engine, precision, **options):
    """The first model, the last one, and the feedback and evaluations."""
    method = build_method(entry, LocalOptions(batch=16, lr=0.05, weight_decay=1e-3, clip_norm=10))
    spec = EngineSpec(kind=engine, precision=precision)
    with TrainingCore.of(data, MODELS["cnn"](**options), 0, engine=spec) as core:
        return core._adapted_to(method.objective).initial, *train_rounds(core, method)


def apart(one, other):
    """The distance of two last models over the way from the first model."""
    return float(torch.linalg.vector_norm(one[1] - other[1]) / torch.linalg.vector_norm(one[1] - one[0]))


@pytest.mark.parametrize("entry", few_of(OBJECTIVES, ["fedmlb"]))
def test_every_objective_trains_in_bfloat16_close_to_float32_and_alike_in_every_engine(data, entry):
    exact, rounded = (two_rounds(data, entry, "sequential", precision) for precision in ("float32", "bfloat16"))
    assert rounded[1].dtype == torch.float32
    assert torch.isfinite(rounded[1]).all()
    assert 1e-4 < apart(exact, rounded) < APART
    for here, there in zip(exact[2], rounded[2], strict=True):
        assert there.loss == pytest.approx(here.loss, rel=0.05)
    assert apart(exact, two_rounds(data, entry, "batched", "bfloat16")) < APART


@pytest.mark.full
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
