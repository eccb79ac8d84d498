"""The training device, and the settings for exact arithmetic on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from edgefl.errors import UserError, nearest
from edgefl.hardware import DEVICES
from edgefl.torch_settings import neutral_torch


def choose_device(name: str) -> torch.device:
    """The training device called ``name``; ``auto`` is a CUDA device if there is one.

    >>> choose_device("cpu")
    device(type='cpu')

    Raises:
        UserError: the name is unknown, or the device is not available.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind = name.partition(":")[0]
    if kind not in DEVICES:
        raise UserError(f"unknown device '{name}'; {nearest(name, DEVICES)}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError("device 'cuda' is not available: PyTorch finds no CUDA device; choose 'cpu' or 'auto'")
    try:
        return torch.device(name)
    except RuntimeError:
        raise UserError(f"unknown device '{name}'; expected auto, cpu, cuda or cuda:N") from None


@contextmanager
def exact_arithmetic(device: torch.device, *, tf32: bool = False) -> Iterator[None]:
    """Run the block with neutral settings and, on CUDA, deterministic kernels; then restore the caller's settings.

    A CPU with one intra-op thread needs no further settings. On CUDA, TF32 is off unless ``tf32`` is set, cuDNN uses
    deterministic kernels and does not choose them by timing, and cuBLAS gets a fixed workspace. Operators without a
    deterministic kernel warn.
    """
    with neutral_torch():
        if device.type == "cuda":
            with _deterministic_cuda(tf32):
                yield
        else:
            yield


@contextmanager
def _deterministic_cuda(tf32: bool) -> Iterator[None]:
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
