"""Copies of small tensors from main memory to an accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def uploaded(numbers: Tensor, device: torch.device | str) -> Tensor:
    """The numbers on a device; from pinned memory, so that the copy waits for none of the device's kernels.

    >>> import torch
    >>> uploaded(torch.arange(2), "cpu")
    tensor([0, 1])
    """
    import torch

    place = torch.device(device)
    if numbers.device.type == "cpu" and place.type == "cuda":
        return numbers.pin_memory().to(place, non_blocking=True)
    return numbers.to(place)
