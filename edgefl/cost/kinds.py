"""The kind of each operator; a device has a separate speed for each kind.

Kinds depend on the operator and on the shape of its weights, never on the batch. Their names are
:data:`edgefl.operator_kinds.KINDS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from edgefl.operator_kinds import WIDTHS

BY_NAME: Mapping[str, str] = {
    **dict.fromkeys(("mm", "mv", "dot", "vdot", "addmm", "addmv"), "matrix-product"),
    **dict.fromkeys(("bmm", "baddbmm"), "batched-product"),
    **dict.fromkeys(("copy_", "clone", "_to_copy", "cat", "stack", "repeat", "flip", "roll"), "move"),
    **dict.fromkeys(("index_select", "index", "gather"), "move"),
    **dict.fromkeys(("sum", "mean", "var", "var_mean", "amax", "max", "min"), "reduction"),
    **dict.fromkeys(("linalg_vector_norm", "logsumexp"), "reduction"),
}
"""Matrix products, operators that copy numbers, and reductions."""

FAMILIES = (("batch_norm", "batch-norm"), ("_norm", "group-norm"), ("pool", "pooling"))
"""Substrings of the names of normalisation and pooling operators; the first match applies."""


def kind_of(name: str, arguments: Sequence[Any]) -> str:
    """The kind of an executed operator.

    Args:
        name: the ATen operator's name without overload, e.g. ``"convolution"``.
        arguments: its positional arguments.

    >>> import torch
    >>> kind_of("convolution", (torch.zeros(1, 64, 8, 8), torch.zeros(64, 1, 3, 3), *[None] * 6, 64))
    'convolution-depthwise-forward'
    """
    way = "backward" if name.endswith(("_backward", "_backward_data")) else "forward"
    if name == "convolution":
        return f"convolution-{_shape(arguments[1], arguments[8])}-{way}"
    if name == "convolution_backward":
        return f"convolution-{_shape(arguments[2], arguments[9])}-{way}"
    if name in BY_NAME:
        return BY_NAME[name]
    family = next((word for part, word in FAMILIES if part in name), None)
    if family is not None:
        return f"{family}-{way}"
    return "elementwise-in-place" if name.endswith("_") else "elementwise"


def _shape(weight: Tensor, groups: int) -> str:
    if groups > 1:
        return "depthwise" if weight.shape[1] == 1 else "grouped"
    width = min(weight.shape[:2])
    word = next((word for below, word in WIDTHS if width < below), "wide")
    return f"{word}-{'pointwise' if max(weight.shape[2:]) == 1 else 'spatial'}"
