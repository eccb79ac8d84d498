"""Group and batch normalisation that read the mode of the call."""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from edgefl.errors import UserError
from edgefl.models.mode import mode

NormKind = Literal["group", "batch"]
Norm = Callable[[int], nn.Module]
"""Creates the normalisation for a number of channels."""

EPSILON = 1e-5
"""Added to the variance, as PyTorch does."""


def norm_of(kind: NormKind, groups: int, *, least: int) -> Norm:
    """The normalisation that options select, for channels in multiples of ``least``; ``groups`` are a group norm's."""
    if kind == "batch":
        return BatchNorm
    if least % groups:
        message = f"the model's numbers of channels are multiples of {least}, which {groups} does not divide"
        raise UserError(message, field="groups")
    return lambda channels: GroupNorm(groups, channels)


class GroupNorm(nn.Module):
    """Group normalisation; at a smaller width, the number of channels per group stays the same if divisible."""

    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        if channels % groups:
            raise ValueError(f"{channels} channels do not divide into {groups} groups")
        self.groups, self.channels = groups, channels
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def groups_of(self, arriving: int) -> int:
        """The number of groups for ``arriving`` leading channels; their size is as close to the full one as possible.

        >>> GroupNorm(32, 512).groups_of(128), GroupNorm(2, 512).groups_of(128), GroupNorm(32, 512).groups_of(408)
        (8, 1, 24)
        """
        most = max(1, arriving * self.groups // self.channels)
        return next(groups for groups in range(most, 0, -1) if arriving % groups == 0)

    def forward(self, inputs: Tensor) -> Tensor:
        arriving = inputs.shape[1]
        if arriving == self.channels:
            return F.group_norm(inputs, self.groups, self.weight, self.bias, EPSILON)
        weight, bias = self.weight[:arriving], self.bias[:arriving]
        return F.group_norm(inputs, self.groups_of(arriving), weight, bias, EPSILON)


class LayerNorm(nn.LayerNorm):
    """Layer normalisation over the features; over the leading ones that arrive at a smaller width."""

    def forward(self, input: Tensor) -> Tensor:
        arriving = input.shape[-1:]
        if arriving == self.weight.shape:
            return super().forward(input)
        return F.layer_norm(input, arriving, self.weight[: arriving[0]], self.bias[: arriving[0]], self.eps)


class BatchNorm(nn.Module):
    """Batch normalisation with momentum 0.1, without the unused counter of batches.

    Running statistics are updated in place, unless the mode disables tracking, or at a width below 1, which uses the
    leading scales and shifts with the batch's statistics (FedAlign's code). A batch with a single number per channel
    has no variance: it becomes the shift, and is not tracked.
    """

    knows_mode: ClassVar[bool] = True
    """It reads the mode of the call itself, so :class:`BlockModel` passes the statistics unchanged."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.momentum = momentum
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, inputs: Tensor) -> Tensor:
        now = mode()
        arriving = inputs.shape[1]
        slim = now.width < 1
        by_batch = now.training or slim
        weight, bias = (self.weight[:arriving], self.bias[:arriving]) if slim else (self.weight, self.bias)
        if not by_batch:
            return self._normalised(inputs, weight, bias, (self.running_mean, self.running_var), by_batch=False)
        if slim or not now.track or inputs.numel() == arriving:
            return self._normalised(inputs, weight, bias, (None, None), by_batch=True)
        # Under vmap PyTorch updates a copy of running statistics that are not contiguous, as slices of a stack are not.
        mean = self.running_mean.clone(memory_format=torch.contiguous_format)
        var = self.running_var.clone(memory_format=torch.contiguous_format)
        output = self._normalised(inputs, weight, bias, (mean, var), by_batch=True)
        self.running_mean.copy_(mean)
        self.running_var.copy_(var)
        return output

    def _normalised(
        self,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor,
        running: tuple[Tensor | None, Tensor | None],
        *,
        by_batch: bool,
    ) -> Tensor:
        # torch.batch_norm instead of F.batch_norm, which raises an error for one number per channel.
        cudnn = torch.backends.cudnn.enabled
        # Inputs may be bfloat16; statistics have the weights' dtype, and under vmap all must have one dtype.
        whole = inputs.to(weight.dtype)
        return torch.batch_norm(whole, weight, bias, *running, by_batch, self.momentum, EPSILON, cudnn).to(inputs.dtype)


def is_refusal(error: Exception) -> bool:
    """True for the error of PyTorch's batch norm that it got one number per channel."""
    return "Expected more than 1 value per channel" in str(error)


def has_library_norms(model: nn.Module) -> bool:
    """True if a model has normalisation layers of PyTorch; those of edgefl take any batch."""
    return any(isinstance(layer, _NormBase) for layer in model.modules())
