"""The number of jobs trained side by side: computed from the memory of one step, not by trial."""

import torch

from edgefl.cost.measure import Step, measure
from edgefl.models.block_model import BlockModel
from edgefl.training import accelerator
from edgefl.training.job_task import JobTask

WIDEST = 64
"""Maximum number of jobs in a chunk: with more, an accelerator is already busy and only memory use grows."""

HOST_BYTES = 1 << 30

DEVICE_SHARE = 0.3
"""Share of an accelerator's memory for one chunk: two chunks may be kept, and data and kernels need the rest."""

MARGIN = 2
"""Ratio of bytes held to bytes counted: stacks, their gathered rows, and copies made by batching."""


def padded(jobs: int) -> int:
    """The number of rows in a call for ``jobs`` jobs: 2, 4, or a multiple of 8, so that few shapes occur.

    >>> [padded(jobs) for jobs in (1, 2, 3, 8, 9, 50)]
    [2, 2, 4, 8, 16, 56]
    """
    return max(2, 1 << (jobs - 1).bit_length()) if jobs <= 8 else -(-jobs // 8) * 8


def fitting(model: BlockModel, device: torch.device, task: JobTask) -> int:
    """The number of jobs like ``task`` that fit in memory together, as a power of two; 1 if two do not fit."""
    # The caller may have disabled gradients (aggregation does), but the memory of a step is that of its backward pass.
    with torch.enable_grad():
        step = Step(task.method, task.objective, task.rule, task.options)
        one = measure(model, step, task.alpha, task.options.step_samples).peak_memory_bytes
    room = DEVICE_SHARE * accelerator.memory_bytes(device) if device.type == "cuda" else HOST_BYTES
    jobs = min(WIDEST, int(room // (MARGIN * max(1, one))))
    return 1 << (jobs.bit_length() - 1) if jobs > 1 else 1
