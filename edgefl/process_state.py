"""The settings of this process that any code can change for all code that runs after it."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def process_state_kept() -> Iterator[None]:
    """Restore the process's global settings when the block ends, also after an error.

    These are the working directory, the environment, warning filters, NumPy's handling of floating-point errors, and
    PyTorch's default type and device, gradient mode, deterministic mode, precision of products and threads. The block
    runs code of plug-ins, which may change any of them; this must not affect a method that runs later.

    >>> with process_state_kept():
    ...     os.environ["EDGEFL_EXAMPLE"] = "1"
    >>> "EDGEFL_EXAMPLE" in os.environ
    False
    """
    import numpy as np

    environment, torch_settings = dict(os.environ), _torch_settings()
    # Not ``catch_warnings``, after which Python repeats warnings that it has already shown.
    filters, show = list(warnings.filters), warnings.showwarning
    with contextlib.chdir("."), np.errstate():
        try:
            yield
        finally:
            warnings.filters[:], warnings.showwarning = filters, show  # type: ignore[index]
            if os.environ != environment:
                os.environ.clear()
                os.environ.update(environment)
            _restore(torch_settings)


_TORCH = (
    "default_dtype",
    "default_device",
    "grad_enabled",
    "deterministic_debug_mode",
    "float32_matmul_precision",
    "num_threads",
)
"""PyTorch's settings, by the names of the functions that read and change them."""


def _torch_settings() -> dict[str, Any] | None:
    """The settings that can be read; ``None`` while PyTorch is not imported."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    settings = {}
    for name in _TORCH:
        # A precision that was set through a newer function cannot be read through this one.
        with suppress(RuntimeError):
            settings[name] = (torch.is_grad_enabled if name == "grad_enabled" else getattr(torch, f"get_{name}"))()
    return settings


def _restore(before: dict[str, Any] | None) -> None:
    """Reset the settings that differ; if the block imported PyTorch, to PyTorch's initial values."""
    torch: Any = sys.modules.get("torch")
    now = _torch_settings()
    if now is None:
        return
    if before is None:
        before = {"default_dtype": torch.float32, "default_device": torch.device("cpu"), "grad_enabled": True}
    for name, value in before.items():
        if name in now and now[name] != value:
            # A default device that is set, even PyTorch's initial one, slows every call: it is unset instead.
            none = name == "default_device" and value.type == "cpu"
            getattr(torch, f"set_{name}")(None if none else value)
