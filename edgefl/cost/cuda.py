"""The operators that PyTorch executes on CUDA where it executes others on a CPU.

PyTorch chooses them by properties of the device, and a tensor of CUDA needs a driver; so they are declared here.
Attention is one operator also with dropout, and with a mask that needs a gradient; a recurrent layer is one operator
for all of its time steps, layers and directions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def _attention(  # noqa: PLR0917  (as of PyTorch)
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The kernel that saves memory, which takes float32, or flash attention for types of 16 bits without a mask."""
    if query.dim() != 4 or enable_gqa:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    dropout_p = 0.0  # the kernel drops weights itself, at the same cost
    if attn_mask is None and query.element_size() == 2:
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        return flash(query, key, value, dropout_p, is_causal, False, scale=scale)[0]  # type: ignore[no-any-return]
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            closed = attn_mask.logical_not()
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(closed, -math.inf)
        attn_mask = attn_mask.expand(*query.shape[:-1], key.shape[-2])
    trains = any(tensor.requires_grad for tensor in (query, key, value))
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention
    return efficient(query, key, value, attn_mask, trains, dropout_p, is_causal, scale=scale)[0]  # type: ignore[no-any-return]


def _recurrent(mode: int) -> Callable[..., tuple[Tensor, ...]]:
    """A recurrent layer of cuDNN."""

    def layer(  # noqa: PLR0917  (as of PyTorch)
        inputs: Tensor,
        state: Tensor | Sequence[Tensor],
        weights: Sequence[Tensor],
        biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Tensor, ...]:
        hidden, cell = (state, None) if isinstance(state, Tensor) else state
        size = (hidden if cell is None else cell).shape[-1]
        projected = 0 if hidden.shape[-1] == size else hidden.shape[-1]
        each = (4 if biases else 2) + bool(projected)
        output, *states = torch._cudnn_rnn(
            *(inputs, list(weights), each, inputs.new_empty(0), hidden, cell, mode, size, projected, layers),
            *(batch_first, dropout, train, bidirectional, [], None),
        )[:3]
        return (output, *states) if cell is not None else (output, states[0])

    return layer


FUSED: Mapping[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: _attention,
    torch.rnn_relu: _recurrent(0),
    torch.rnn_tanh: _recurrent(1),
    torch.lstm: _recurrent(2),
    torch.gru: _recurrent(3),
}
"""What CUDA executes in place of these functions, with their arguments."""
