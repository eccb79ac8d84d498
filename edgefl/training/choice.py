"""The choice of the engine: by rule, not by timing, so that a run can be repeated."""

from __future__ import annotations

import torch

from edgefl.errors import UserError
from edgefl.methods.parts.local_step import Precision
from edgefl.training.base import ENGINES
from edgefl.training.processors import cores


def choose_engine(name: str, device: torch.device, workers: int | None = None) -> str:
    """The engine called ``name``; ``auto`` is resolved by the device and the number of cores.

    On a CUDA device ``auto`` is ``batched``: a local step of one client is hundreds of kernels that take less time than
    their launch, so clients train side by side, as many as 30 % of the device's memory can hold by the counted memory
    of a step, and steps are replayed as graphs. If not even two fit, clients are trained one after another, as with
    ``sequential``. On a CPU with more than one core ``auto`` is ``parallel`` (which runs a single job in the calling
    thread), else ``sequential``. These two give bit-identical results, so the choice changes only the duration;
    ``batched`` agrees with them within rounding. ``ray``, which uses other machines, must be chosen by name.

    >>> choose_engine("auto", torch.device("cpu"), workers=2), choose_engine("auto", torch.device("cpu"), workers=1)
    ('parallel', 'sequential')
    >>> choose_engine("auto", torch.device("cuda"))
    'batched'

    Raises:
        UserError: there is no such engine, or it does not run on the device.
    """
    if name == "auto":
        if device.type == "cuda":
            return "batched"
        return "parallel" if device.type == "cpu" and (workers or cores()) > 1 else "sequential"
    devices = ENGINES[name].devices
    if device.type not in devices:
        raise UserError(
            f"engine '{name}' runs on {' and '.join(devices)}, not on {device.type}; choose 'sequential' or 'auto'"
        )
    return name


def engines_on(device: torch.device) -> tuple[str, ...]:
    """The engines that run on a device of this machine.

    >>> engines_on(torch.device("cuda"))
    ('batched', 'sequential')
    """
    return tuple(name for name, entry in ENGINES if not entry.elsewhere and device.type in entry.devices)


def check_precision(precision: Precision, device: torch.device) -> None:
    """Raise an error if the device does not support the precision.

    Raises:
        UserError: it is ``tf32`` and the device is not a CUDA device.
    """
    if precision == "tf32" and device.type != "cuda":
        raise UserError(
            f"tf32 is a precision of CUDA devices and training runs on {device.type}; expected float32 or bfloat16",
            field="training.engine.precision",
        )
