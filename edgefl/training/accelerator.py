"""Everything that is particular to CUDA devices: settings, memory, waiting, and graphs of kernels."""

import gc
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from edgefl.errors import first_line


def available() -> bool:
    """True if PyTorch finds a CUDA device."""
    return torch.cuda.is_available()


@contextmanager
def deterministic(*, tf32: bool) -> Iterator[None]:
    """Run the block with deterministic kernels and float32 or TF32 products; then restore the caller's settings.

    cuDNN does not choose kernels by timing, and cuBLAS gets a fixed workspace. Operators without a deterministic kernel
    warn.
    """
    # cuBLAS reads it when it creates its handle, so it must be set before the first product.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = (cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32)
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    strict, warn = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = True, False, tf32, tf32
    torch.use_deterministic_algorithms(True, warn_only=True)
    # No code here reads uninitialised memory, and filling it costs one kernel per tensor.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = before
        torch.use_deterministic_algorithms(strict, warn_only=warn)
        torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]


def room_for_data(device: torch.device) -> float:
    """The bytes of a device's memory that data sets may take: half of a CUDA device's, any number on a CPU."""
    return memory_bytes(device) / 2 if device.type == "cuda" else math.inf


def memory_bytes(device: torch.device) -> int:
    """The memory of a CUDA device."""
    return torch.cuda.get_device_properties(device).total_memory


def wait_for(device: torch.device) -> None:
    """Wait until the device has run all kernels; other kinds of devices never lag behind."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def recorded(step: Callable[[], None], device: torch.device) -> Callable[[], None] | None:
    """The kernels of a step as a graph, which one call launches; ``None`` with a warning if it cannot be recorded.

    ``step`` reads and writes fixed memory only, on ``device``, which need not be the current one. Recording executes
    nothing, so this memory is unchanged. All graphs of a device share one pool of memory: their steps run one after
    another, and leave results in memory that existed before.
    """
    with torch.cuda.device(device):
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        try:
            with _no_garbage_collected(), torch.cuda.graph(graph, pool=_pool(torch.cuda.current_device())):
                step()
        except RuntimeError as error:
            torch.cuda.synchronize()
            message = "a local step cannot be recorded as a CUDA graph, so its kernels are launched one by one: "
            warnings.warn(message + first_line(error), stacklevel=2)
            return None

    def replay() -> None:
        with torch.cuda.device(device):
            graph.replay()

    return replay


@contextmanager
def _no_garbage_collected() -> Iterator[None]:
    """A graph that is deleted while another is recorded ends the recording."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _pool(device: int) -> Any:
    """PyTorch cannot use a pool again after its last graph, so one graph stays."""
    if device not in _first_graphs:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            torch.zeros(1, device="cuda")
        _first_graphs[device] = graph
    return _first_graphs[device].pool()


_first_graphs: dict[int, torch.cuda.CUDAGraph] = {}


class Replay:
    """Calls a step that reads ``reads`` and writes ``writes``, both in fixed memory; it may change other memory, too.

    On CUDA, the kernels of the second call are recorded as a graph, which later calls launch: a local step of a small
    model is a few hundred kernels of microseconds each; launched one by one, they wait for Python. The first call is
    not recorded, because libraries initialise in it. The bits are the same. A step that cannot be recorded, because it
    waits for the device, always runs without a graph, after a warning.
    """

    reads: Mapping[str, Tensor]
    writes: Tensor

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step
        self._calls = 0
        self._graph: Callable[[], None] | None = None

    def __call__(self, given: Mapping[str, Tensor]) -> Tensor:
        """Run the step with these inputs, and return a copy of its output."""
        for name, tensor in given.items():
            self.reads[name].copy_(tensor)
        self._calls += 1
        if self._calls == 2 and self.writes.device.type == "cuda":
            self._graph = recorded(self._step, self.writes.device)
        (self._graph or self._step)()
        return self.writes.clone()
