"""The interface of engines, and the device and the ``engine:`` of training, chosen by rule, not by timing."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Protocol, Self

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from edgefl.errors import UserError, nearest
from edgefl.hardware import DEVICES, EngineKind, cores
from edgefl.models.block_model import BlockModel
from edgefl.options import Component, of_kind
from edgefl.registry import Registry
from edgefl.torch_settings import Precision, neutral_torch
from edgefl.training import accelerator
from edgefl.training.job import Evaluation
from edgefl.training.job_task import ClientData, JobResult, JobTask
from edgefl.validation import validated


class Engine(Protocol):
    """Trains jobs. Every engine returns for every job the result that :func:`train_job` returns for it alone."""

    def train(self, tasks: Sequence[JobTask]) -> list[JobResult]:
        """Train all jobs and return the results in the order of the tasks, independent of the order of execution.

        Raises:
            TrainingFault: a local step failed; the message names method, client, round and step.
        """

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        """Return metric and mean loss of the model ``vector`` ``[size]`` on the evaluation split.

        ``mode`` states how the evaluation differs from a plain one; see ``Objective.evaluation_mode``.
        """

    def close(self) -> None:
        """Release workers and memory; the engine must not be used again."""


class EngineInputs(NamedTuple):
    """An engine is built from these."""

    model: BlockModel  # the skeleton that jobs are called with
    data: ClientData
    device: torch.device
    workers: int | None = None  # number of concurrent jobs; None: the engine's own choice. It never changes a result
    precision: Precision = "float32"


EngineWrapper = Callable[[Engine, EngineInputs, int], Engine]
"""What takes the place of an engine, given what that one was built from, and the seed."""


@dataclass(frozen=True)
class EngineEntry:
    """An engine as its module in :mod:`edgefl.training.engines` registers it."""

    build: Callable[[EngineInputs], Engine]
    devices: tuple[str, ...] = ("cpu", "cuda")  # kinds of devices on which it runs
    alike: bool = True  # results are bit-identical to training each job alone
    elsewhere: bool = False  # it trains on other machines


ENGINES: Registry[EngineEntry] = Registry("engine", package="edgefl.training.engines")


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
    with neutral_torch(), accelerator.deterministic(tf32=tf32) if device.type == "cuda" else nullcontext():
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


class EngineSpec(Component):
    """The training engine and its numerical precision."""

    kind: EngineKind = Field(
        default="auto",
        description="auto chooses by the device and its cores, not by timing; batched rounds differently from the "
        "others, which agree to the bit",
    )
    precision: Precision = Field(
        default="float32",
        description="precision of products in a local step: float32, tf32 (CUDA only) or bfloat16 (autocast); "
        "parameters, aggregation and evaluation are always float32",
    )

    @classmethod
    def of(cls, value: EngineSpec | str) -> Self:
        """A specification unchanged, or the default specification of a named engine."""
        return validated(cls, of_kind(value))


EngineChoice = Annotated[EngineSpec, BeforeValidator(of_kind, json_schema_input_type=EngineKind | EngineSpec)]


def choose_engine(name: str, device: torch.device, workers: int | None = None) -> str:
    """The engine called ``name``; ``auto`` is resolved by the device and the number of cores.

    On a CUDA device ``auto`` is ``batched``: a local step of one client is hundreds of kernels that take less time than
    their launch, so clients train side by side, as many as 30 % of the device's memory can hold by the counted memory
    of a step, and steps are replayed as graphs. If not even two fit, or a convolution has a billion operations, clients
    are trained one after another, as with ``sequential``. On a CPU with more than one core ``auto`` is ``parallel``
    (which runs a single job in the calling thread), else ``sequential``. These two give bit-identical results, so the
    choice changes only the duration; ``batched`` agrees with them within rounding. ``ray``, which uses other machines,
    must be chosen by name.

    >>> choose_engine("auto", torch.device("cpu"), workers=2), choose_engine("auto", torch.device("cpu"), workers=1)
    ('parallel', 'sequential')
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


def check_precision(precision: Precision, device: torch.device) -> None:
    """Check that the device supports the precision."""
    if precision == "tf32" and device.type != "cuda":
        raise UserError(
            f"tf32 is a precision of CUDA devices and training runs on {device.type}; expected float32 or bfloat16",
            field="training.engine.precision",
        )
