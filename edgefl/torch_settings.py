"""PyTorch's settings that affect results, and the neutral state in which edgefl computes.

The caller of edgefl may have changed any of them, and so may the code of plug-ins. Neither may affect a figure: every
command and every job runs in :func:`neutral_torch`, in this process, its threads and its worker processes alike.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from operator import attrgetter
from typing import Any, NamedTuple

INTRA_OP_THREADS = 1
"""Threads inside one operator while edgefl computes: sums that are split over threads round differently.

edgefl uses several cores by running jobs in parallel.
"""


class Setting(NamedTuple):
    """A setting of PyTorch.

    Attributes:
        read: returns the value; raises an error if this version of PyTorch has no such setting.
        write: sets the value.
        neutral: the value while edgefl computes.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], object]
    neutral: Any


def _attribute(path: str, neutral: Any) -> Setting:
    """A setting that is an attribute in ``torch.backends``."""
    parent, _, name = f"backends.{path}".rpartition(".")
    return Setting(
        attrgetter(f"backends.{path}"), lambda torch, value: setattr(attrgetter(parent)(torch), name, value), neutral
    )


def _function(name: str, neutral: Any) -> Setting:
    """A setting that is read and written by functions."""
    return Setting(
        lambda torch: getattr(torch, f"get_{name}")(),
        lambda torch, value: getattr(torch, f"set_{name}")(value),
        neutral,
    )


def _kernel(name: str) -> Setting:
    """Whether a kernel of attention may be chosen."""
    return Setting(
        lambda torch: getattr(torch.backends.cuda, f"{name}_sdp_enabled")(),
        lambda torch, value: getattr(torch.backends.cuda, f"enable_{name}_sdp")(value),
        True,
    )


def _autocast(device: str) -> Setting:
    """Whether operators on a kind of device convert their inputs, and to which type."""
    return Setting(
        lambda torch: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)),
        lambda torch, value: (
            torch.set_autocast_enabled(device, value[0]),
            value[1] is None or torch.set_autocast_dtype(device, value[1]),
        ),
        (False, None),
    )


OF_THE_PROCESS: Mapping[str, Setting] = {
    "default_dtype": Setting(
        lambda torch: str(torch.get_default_dtype()).removeprefix("torch."),
        lambda torch, value: torch.set_default_dtype(getattr(torch, value)),
        "float32",
    ),
    "deterministic": _function("deterministic_debug_mode", 0),
    "anomalies": Setting(
        lambda torch: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda torch, value: torch.autograd.set_detect_anomaly(*value),
        (False, True),
    ),
    # Each of these writes some that follow it.
    "products": _function("float32_matmul_precision", "highest"),
    "cuda_tf32": _attribute("cuda.matmul.allow_tf32", False),
    "cudnn_tf32": _attribute("cudnn.allow_tf32", True),
    "precision": _attribute("fp32_precision", "none"),
    # Once a program has used these newer names, PyTorch refuses to read the older ones above.
    "cuda_products": _attribute("cuda.matmul.fp32_precision", "ieee"),
    "cudnn_convolutions": _attribute("cudnn.conv.fp32_precision", "tf32"),
    "cudnn_recurrences": _attribute("cudnn.rnn.fp32_precision", "tf32"),
    "mkldnn_precision": _attribute("mkldnn.fp32_precision", "none"),
    "mkldnn_products": _attribute("mkldnn.matmul.fp32_precision", "none"),
    "mkldnn_convolutions": _attribute("mkldnn.conv.fp32_precision", "none"),
    "mkldnn_recurrences": _attribute("mkldnn.rnn.fp32_precision", "none"),
    "mkldnn": _attribute("mkldnn.enabled", True),
    "mkldnn_deterministic": _attribute("mkldnn.deterministic", False),
    "cudnn": _attribute("cudnn.enabled", True),
    "cudnn_by_timing": _attribute("cudnn.benchmark", False),
    "cudnn_deterministic": _attribute("cudnn.deterministic", False),
    "cuda_half_sums": _attribute("cuda.matmul.allow_fp16_reduced_precision_reduction", True),
    "cuda_bfloat16_sums": _attribute("cuda.matmul.allow_bf16_reduced_precision_reduction", True),
    "flash_attention": _kernel("flash"),
    "economical_attention": _kernel("mem_efficient"),
    "plain_attention": _kernel("math"),
}
"""Settings that one thread changes for all."""

OF_A_THREAD: Mapping[str, Setting] = {
    # Also the default of new threads, which set their own when they enter :func:`neutral_torch`.
    "threads": _function("num_threads", INTRA_OP_THREADS),
    "gradients": _function("grad_enabled", True)._replace(read=lambda torch: torch.is_grad_enabled()),
    "autocast_cpu": _autocast("cpu"),
    "autocast_cuda": _autocast("cuda"),
    "autocast_cache": _function("autocast_cache_enabled", True)._replace(
        read=lambda torch: torch.is_autocast_cache_enabled()
    ),
    # PyTorch sets, but does not read it; Python's own arithmetic uses the same flag of the processor.
    "tiny_is_zero": Setting(
        lambda _: sys.float_info.min * 0.5 == 0.0, lambda torch, value: torch.set_flush_denormal(value), False
    ),
}
"""Settings that each thread has for itself."""


def settings(family: Mapping[str, Setting]) -> dict[str, Any]:
    """The present values by name, of all that this version of PyTorch has; none while PyTorch is not imported."""
    torch = sys.modules.get("torch")
    found: dict[str, Any] = {}
    if torch is not None:
        for name, setting in family.items():
            # RuntimeError: the precision of products, which was set through a newer function.
            with suppress(AttributeError, RuntimeError):
                found[name] = setting.read(torch)
    return found


def neutral(family: Mapping[str, Setting]) -> dict[str, Any]:
    """The values while edgefl computes."""
    return {name: setting.neutral for name, setting in family.items()}


def set_to(family: Mapping[str, Setting], values: Mapping[str, Any]) -> None:
    """Set the settings that differ from ``values``."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for name, value in values.items():
        setting = family[name]
        with suppress(AttributeError, RuntimeError):
            try:
                differs = setting.read(torch) != value
            except RuntimeError:
                differs = True
            if differs:
                setting.write(torch, value)


@contextmanager
def neutral_torch() -> Iterator[None]:
    """Run the block with neutral settings of PyTorch, and restore the caller's settings, also after an error.

    The block may change settings: a block in it starts with neutral settings again. If blocks run in several threads
    at once, the settings of the process are restored when the last of them ends. Works as a decorator too.

    >>> import torch
    >>> with torch.inference_mode(), neutral_torch():
    ...     torch.is_grad_enabled()
    True
    """
    torch = sys.modules.get("torch")
    if torch is None:
        try:
            yield
        finally:  # the block may have imported PyTorch; the caller still has its initial settings
            set_to(OF_THE_PROCESS, neutral(OF_THE_PROCESS))
            of_thread = neutral(OF_A_THREAD)
            del of_thread["threads"]
            set_to(OF_A_THREAD, of_thread)
        return
    with _process_neutral(), ExitStack() as stack:
        before, device = settings(OF_A_THREAD), torch.get_default_device()
        # Also saves and restores what no function reads, such as forward-mode gradients.
        stack.enter_context(torch.inference_mode(False))
        if device.type != "cpu":
            torch.set_default_device(None)
            if torch.get_default_device().type != "cpu":  # set by ``with torch.device(...)``
                stack.enter_context(torch.device("cpu"))
        set_to(OF_A_THREAD, neutral(OF_A_THREAD))
        try:
            yield
        finally:
            stack.close()
            if torch.get_default_device() != device:
                # A default device that is set, even PyTorch's initial one, slows every call: it is unset instead.
                torch.set_default_device(None if device.type == "cpu" else device)
            set_to(OF_A_THREAD, before)


class _Inside(threading.local):
    """Whether this thread is in a block."""

    value = False


_inside = _Inside()
_lock = threading.Lock()
_threads_inside = 0
_callers: dict[str, Any] = {}
"""The settings of the process before the first of the threads that are in a block entered it."""


def _forked() -> None:
    """A forked copy of the process has only the thread that forked it."""
    global _lock, _threads_inside
    _lock, _threads_inside = threading.Lock(), int(_inside.value)


os.register_at_fork(after_in_child=_forked)


@contextmanager
def _process_neutral() -> Iterator[None]:
    global _threads_inside, _callers  # noqa: PLW0603  (PyTorch has them once for the process)
    outermost = not _inside.value
    with _lock:
        before = settings(OF_THE_PROCESS)
        if outermost:
            if not _threads_inside:
                _callers = before
            _threads_inside += 1
            _inside.value = True
        set_to(OF_THE_PROCESS, neutral(OF_THE_PROCESS))
    try:
        yield
    finally:
        with _lock:
            if outermost:
                _threads_inside -= 1
                _inside.value = False
                before = {} if _threads_inside else _callers
            set_to(OF_THE_PROCESS, before)
