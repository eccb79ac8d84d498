"""The training device, and the settings for exact arithmetic on it."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from edgefl.errors import UserError, nearest
from edgefl.hardware import DEVICES
from edgefl.torch_settings import neutral_torch
from edgefl.training import accelerator


def choose_device(name: str) -> torch.device:
    """The training device called ``name``; ``auto`` is a CUDA device if there is one."""
    if name == "auto":
        name = "cuda" if accelerator.available() else "cpu"
    kind = name.partition(":")[0]
    if kind not in DEVICES:
        raise UserError(f"unknown device '{name}'; {nearest(name, DEVICES)}")
    if kind == "cuda" and not accelerator.available():
        raise UserError("device 'cuda' is not available: PyTorch finds no CUDA device; choose 'cpu' or 'auto'")
    try:
        return torch.device(name)
    except RuntimeError:
        raise UserError(f"unknown device '{name}'; expected auto, cpu, cuda or cuda:N") from None


@contextmanager
def exact_arithmetic(device: torch.device, *, tf32: bool = False) -> Iterator[None]:
    """Run the block with neutral settings and, on CUDA, deterministic kernels; then restore the caller's settings.

    On CUDA, TF32 is off unless ``tf32`` is set; see :func:`~edgefl.training.accelerator.deterministic`.
    """
    with neutral_torch():
        if device.type == "cuda":
            with accelerator.deterministic(tf32=tf32):
                yield
        else:
            yield


def has_bfloat16_matrix_units() -> bool:
    """True if this processor multiplies bfloat16 matrices in units of their own (AMX), and PyTorch uses them."""
    return bool(torch.cpu._is_amx_tile_supported()) and multiplies_bfloat16()


def multiplies_bfloat16() -> bool:
    """True if PyTorch has kernels for products in bfloat16 on this processor, not only its slow reference ones.

    Without them (x86 processors without AVX-512, for example) a convolution takes several times as long as in float32.
    """
    return bool(torch._C._has_mkldnn) and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


_MMAP_THRESHOLD, _TRIM_THRESHOLD, _MOST = -3, -1, (1 << 31) - 1
"""``M_MMAP_THRESHOLD`` and ``M_TRIM_THRESHOLD`` of mallopt(3), and its largest value."""


def keep_freed_memory() -> None:
    """Keep freed memory for the next step: returning it to the system and allocating it again clears every page."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, TypeError, OSError):
        return  # not glibc's
    if not mallopt(_MMAP_THRESHOLD, _MOST):
        mallopt(_MMAP_THRESHOLD, 32 << 20)  # the maximum before glibc 2.35
    mallopt(_TRIM_THRESHOLD, _MOST)
