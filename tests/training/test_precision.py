"""Precision and accelerators."""

from contextlib import contextmanager

import pytest
import torch

from edgefl.data.federated import load_federated
from edgefl.data.sets.synthetic import Synthetic
from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.registry import MODELS
from edgefl.training import accelerator
from edgefl.training.core import TrainingCore
from edgefl.training.engine_spec import EngineSpec, check_precision, exact_arithmetic

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


SECOND = torch.device("cuda", 1)


class Driver:
    """Keeps the current device, and notes the device of each graph that is recorded or launched."""

    def __init__(self, monkeypatch) -> None:
        self.current, self.recorded, self.launched = 0, [], []
        driver = self

        class CUDAGraph:
            def replay(self):
                driver.launched.append(driver.current)

        @contextmanager
        def device(which):
            before, self.current = self.current, which.index
            try:
                yield
            finally:
                self.current = before

        @contextmanager
        def graph(_, pool):
            self.recorded.append(self.current)
            yield

        parts = {"CUDAGraph": CUDAGraph, "device": device, "graph": graph}
        parts |= {"synchronize": lambda: None, "current_device": lambda: self.current}
        for name, part in parts.items():
            monkeypatch.setattr(torch.cuda, name, part)
        monkeypatch.setattr(accelerator, "_pool", lambda device: None)


def test_graphs_are_recorded_and_launched_on_the_device_of_their_memory(monkeypatch):
    driver = Driver(monkeypatch)
    replay = accelerator.recorded(lambda: None, SECOND)
    replay()
    assert (driver.recorded, driver.launched, driver.current) == ([1], [1], 0)


def test_a_failed_recording_is_reported_with_its_reason(monkeypatch):
    Driver(monkeypatch)

    def step():
        raise RuntimeError("operation not permitted when stream is capturing\nand a long explanation")

    with pytest.warns(UserWarning, match="cannot be recorded as a CUDA graph.*operation not permitted") as said:
        assert accelerator.recorded(step, SECOND) is None
    assert "long explanation" not in str(said[0].message)
