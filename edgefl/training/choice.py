"""The choice of the engine: by rule, not by timing, so that a run can be repeated."""

from __future__ import annotations

import torch

from edgefl.errors import UserError, nearest
from edgefl.hardware import ENGINES, EngineName
from edgefl.methods.precision import Precision
from edgefl.models.block_model import BlockModel
from edgefl.training.base import Engine, JobData
from edgefl.training.batched.engine import BatchedEngine
from edgefl.training.parallel.engine import ParallelEngine
from edgefl.training.processors import cores
from edgefl.training.sequential import SequentialEngine
from edgefl.training.spec import Convolutions

ALIKE: tuple[EngineName, ...] = ("sequential", "parallel", "ray")
"""Engines whose results are bit-identical to training each job alone."""


def choose_engine(name: str, device: torch.device, workers: int | None = None) -> EngineName:
    """The engine called ``name``; ``auto`` is resolved by the device and the number of cores.

    On an accelerator, which all jobs share, ``auto`` is ``sequential``. On a CPU with more than one core it is
    ``parallel`` (which runs a single job in the calling thread), else ``sequential``. Both give bit-identical results,
    so the choice changes only the duration. ``batched`` agrees with them only within rounding and must be chosen by
    name: it is meant for accelerators, and its gain depends on the model and the size of the cohort, so measure it
    first. ``ray``, which uses other machines, must also be chosen by name.

    >>> choose_engine("auto", torch.device("cpu"), workers=2), choose_engine("auto", torch.device("cpu"), workers=1)
    ('parallel', 'sequential')

    Raises:
        UserError: there is no such engine, or it does not run on the device.
    """
    if name == "auto":
        return "parallel" if device.type == "cpu" and (workers or cores()) > 1 else "sequential"
    for known in ENGINES:
        if name == known:
            if known == "parallel" and device.type != "cpu":
                raise UserError(
                    f"engine 'parallel' runs on CPU cores, not on {device.type}; choose 'sequential' or 'auto'"
                )
            return known
    raise UserError(f"unknown engine '{name}'; {nearest(name, ['auto', *ENGINES])}")


def engines_on(device: torch.device) -> tuple[EngineName, ...]:
    """The engines that run on a device of this process; ``ray`` uses other processes.

    >>> engines_on(torch.device("cuda"))
    ('sequential', 'batched')
    """
    return tuple(name for name in ENGINES if name != "ray" and (name != "parallel" or device.type == "cpu"))


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


def build_engine(  # noqa: PLR0917  (what engines are made of)
    name: EngineName,
    model: BlockModel,
    data: JobData,
    device: torch.device,
    workers: int | None = None,
    precision: Precision = "float32",
    convolutions: Convolutions = "grouped",
) -> Engine:
    """The engine called ``name``; ``workers`` defaults to the process's cores and never changes a result."""
    if name == "sequential":
        return SequentialEngine(model, data, device, precision)
    if name == "batched":
        return BatchedEngine(model, data, device, precision=precision, convolutions=convolutions)
    if name == "ray":
        # Imported only on use, so that other engines do not wait for Ray's import.
        from edgefl.training.ray.engine import RayEngine

        return RayEngine(model, data, device, precision)
    return ParallelEngine(model, data, workers or cores(), precision)
