import sys

import pytest
import torch

from edgefl.errors import UserError
from edgefl.hardware import ENGINE_NAMES, cores
from edgefl.torch_settings import neutral_torch
from edgefl.training.engine_spec import ENGINES, EngineInputs, choose_device, choose_engine, exact_arithmetic
from edgefl.training.engines.batched import BatchedEngine
from edgefl.training.engines.parallel import ParallelEngine
from edgefl.training.engines.ray import connected
from edgefl.training.engines.sequential import SequentialEngine

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_auto_is_decided_by_device_and_cores_alone():
    assert choose_engine("auto", CUDA, workers=8) == "batched"
    assert choose_engine("auto", CPU, workers=8) == "parallel"
    assert choose_engine("auto", CPU, workers=1) == "sequential"
    assert choose_engine("auto", CPU) == ("parallel" if cores() > 1 else "sequential")


def test_a_named_engine_is_taken_at_its_word(tiny):
    kinds = {"batched": BatchedEngine, "parallel": ParallelEngine, "sequential": SequentialEngine}
    assert list(kinds) == [name for name, entry in ENGINES if not entry.elsewhere]
    for name, kind in kinds.items():
        given = EngineInputs(tiny.model(), tiny.data(), CPU, 2)
        assert isinstance(ENGINES[choose_engine(name, CPU)].build(given), kind)


def test_the_modules_of_the_engines_are_the_only_list_of_them():
    assert ENGINES.names() == list(ENGINE_NAMES) == ["batched", "parallel", "ray", "sequential"]
    assert {name for name, entry in ENGINES if not entry.alike} == {"batched"}


def test_unknown_engines_and_devices_are_refused_with_the_nearest_name():
    with pytest.raises(UserError, match="unknown engine 'paralel'; did you mean 'parallel'"):
        choose_engine("paralel", CPU)
    with pytest.raises(UserError, match="engine 'parallel' runs on cpu, not on cuda"):
        choose_engine("parallel", CUDA)
    with pytest.raises(UserError, match="unknown device 'cud'; did you mean 'cuda'"):
        choose_device("cud")
    with pytest.raises(UserError, match="expected auto, cpu, cuda or cuda:N"):
        choose_device("cpu:x")


def test_cuda_is_refused_where_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == CPU
    with pytest.raises(UserError, match="PyTorch finds no CUDA device"):
        choose_device("cuda:0")


def test_threads_are_restored_also_when_the_block_fails():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with neutral_torch():
            assert torch.get_num_threads() == 1
            with neutral_torch():
                assert torch.get_num_threads() == 1
            assert torch.get_num_threads() == 1
        with pytest.raises(ZeroDivisionError), neutral_torch():
            1 / 0  # noqa: B018
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_exact_arithmetic_restores_what_it_sets(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    cudnn = torch.backends.cudnn
    before = (cudnn.deterministic, cudnn.benchmark, torch.are_deterministic_algorithms_enabled())
    with exact_arithmetic(CUDA):
        assert cudnn.deterministic
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cuda.matmul.allow_tf32
    assert (cudnn.deterministic, cudnn.benchmark, torch.are_deterministic_algorithms_enabled()) == before


def test_without_ray_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"'\.\[ray\]'"):
        connected()
