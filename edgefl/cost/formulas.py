"""Multiply-accumulates, floating-point operations and the kind of each operator that PyTorch executes.

Products (convolutions and matrix products) are exact: one multiply-accumulate (MAC) is two FLOPs, a bias one more. The
backward pass of a convolution has the forward pass's MACs for each of the two gradients that are requested, for any
number of groups. Other operators mostly move bytes; they count as the arithmetic of a plain loop over the elements: one
FLOP for one function of a number, two for a fused multiply-add. Copies and views count zero.

A device has a separate speed for each kind. Kinds depend on the operator and on the shape of its weights, never on the
batch; their names are :data:`edgefl.operator_kinds.KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from edgefl.operator_kinds import WIDTHS

Arguments = Sequence[Any]


class Work(NamedTuple):
    """MACs of products, and all FLOPs (twice the MACs plus all other arithmetic)."""

    macs: int
    flops: int


def _convolution(arguments: Arguments, outputs: Sequence[Tensor]) -> Work:
    inputs, weight, bias = arguments[:3]
    macs = _convolution_macs(inputs, weight, outputs[0], transposed=arguments[6])
    return Work(macs, 2 * macs + (outputs[0].numel() if bias is not None else 0))


def _convolution_macs(inputs: Tensor, weight: Tensor, outputs: Tensor, *, transposed: bool) -> int:
    """Each output sums over a kernel of one group's inputs; if transposed, each input is distributed over a kernel."""
    return (inputs if transposed else outputs).numel() * weight[0].numel()


def _convolution_backward(arguments: Arguments, _: Sequence[Tensor]) -> Work:
    gradient, inputs, weight = arguments[:3]
    by_input, by_weight, by_bias = arguments[10]
    macs = _convolution_macs(inputs, weight, gradient, transposed=arguments[7]) * (int(by_input) + int(by_weight))
    return Work(macs, 2 * macs + (gradient.numel() if by_bias else 0))


def _matrix_product(first: int, *, added: bool) -> Callable[[Arguments, Sequence[Tensor]], Work]:
    """A product of ``arguments[first]`` with the next argument over the former's last dimension, plus a term."""

    def work(arguments: Arguments, outputs: Sequence[Tensor]) -> Work:
        numbers = outputs[0].numel()
        macs = numbers * int(arguments[first].shape[-1])
        return Work(macs, 2 * macs + (numbers if added else 0))

    return work


PRODUCTS: Mapping[str, Callable[[Arguments, Sequence[Tensor]], Work]] = {
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "mm": _matrix_product(0, added=False),
    "bmm": _matrix_product(0, added=False),
    "mv": _matrix_product(0, added=False),
    "dot": _matrix_product(0, added=False),
    "vdot": _matrix_product(0, added=False),
    "addmm": _matrix_product(1, added=True),
    "addmv": _matrix_product(1, added=True),
    "baddbmm": _matrix_product(1, added=True),
}
"""Operators that multiply and accumulate, by the name of their ATen operator."""

MOVES = frozenset(
    {
        *("copy_", "clone", "_to_copy", "cat", "stack", "index", "index_select", "gather", "scatter", "scatter_"),
        *("fill", "fill_", "zero_", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "scalar_tensor"),
        *("new_zeros", "new_ones", "new_full", "arange", "eye"),
        *("index_put", "index_put_", "embedding", "_unsafe_index"),
        *("where", "masked_fill", "masked_fill_", "flip", "roll", "repeat", "constant_pad_nd", "tril", "triu"),
        *("select_backward", "slice_backward", "slice_scatter", "select_scatter", "nll_loss_backward"),
    }
)
"""Operators that move or write numbers without arithmetic."""

INPUT_FLOPS: Mapping[str, int] = {
    **dict.fromkeys(
        ("sum", "mean", "prod", "amax", "amin", "max", "min", "argmax", "argmin", "cumsum", "sort", "topk"), 1
    ),
    **dict.fromkeys(("_adaptive_avg_pool2d", "embedding_dense_backward"), 1),
    "linalg_vector_norm": 2,  # square, add
    **dict.fromkeys(("var", "std", "var_mean", "std_mean", "logsumexp"), 4),  # add for the mean; subtract, square, add
}
"""FLOPs for each number of the first input, for operators whose arithmetic is proportional to it."""

OUTPUT_FLOPS: Mapping[str, int] = {
    # Statistics (see var), then scale and shift. Backward: two sums, one of a product with the normalised input, then a
    # linear combination of gradient and input.
    **dict.fromkeys(("native_batch_norm", "cudnn_batch_norm", "native_group_norm", "native_layer_norm"), 6),
    **dict.fromkeys(("native_batch_norm_backward", "cudnn_batch_norm_backward"), 8),
    **dict.fromkeys(("native_group_norm_backward", "native_layer_norm_backward"), 8),
    **dict.fromkeys(("_softmax", "_log_softmax"), 5),  # maximum, subtract, exponential, add, divide or subtract
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), 4),
    **dict.fromkeys(("upsample_bilinear2d", "upsample_bilinear2d_backward"), 7),
    **dict.fromkeys(("addcmul", "addcmul_", "addcdiv", "addcdiv_", "lerp", "lerp_"), 3),
    **dict.fromkeys(("gelu", "gelu_backward", "silu", "silu_backward", "tanh_backward", "sigmoid_backward"), 4),
}
"""FLOPs for each number of the first output, for operators with more than one."""

POOLS = frozenset({"max_pool2d_with_indices", "max_pool2d", "avg_pool2d"})
"""Operators that reduce a window to one number; the window's sides are their second argument."""

BATCH_NORMS = frozenset({"native_batch_norm", "cudnn_batch_norm"})
"""Operators that only scale and shift if their sixth argument, training, is false."""


def work_of(name: str, arguments: Arguments, keywords: Mapping[str, Any], outputs: Sequence[Tensor]) -> Work:
    """The work of one executed operator, by its ATen name without overload, e.g. ``"convolution"``.

    >>> import torch
    >>> work_of("mm", (torch.zeros(2, 3), torch.zeros(3, 5)), {}, [torch.zeros(2, 5)])
    Work(macs=30, flops=60)
    """
    if name in PRODUCTS:
        return PRODUCTS[name](arguments, outputs)
    if name in MOVES or not outputs:
        return Work(0, 0)
    if name in INPUT_FLOPS:
        return Work(0, INPUT_FLOPS[name] * int(arguments[0].numel()))
    return Work(0, _each(name, arguments, keywords) * outputs[0].numel())


def _each(name: str, arguments: Arguments, keywords: Mapping[str, Any]) -> int:
    if name in POOLS:
        height, width = (list(arguments[1]) * 2)[:2]
        return int(height * width)
    if name in BATCH_NORMS and not arguments[5]:
        return 2
    if name in OUTPUT_FLOPS:
        return OUTPUT_FLOPS[name]
    return 2 if keywords.get("alpha", 1) != 1 else 1


BY_NAME: Mapping[str, str] = {
    **dict.fromkeys(("mm", "mv", "dot", "vdot", "addmm", "addmv"), "matrix-product"),
    **dict.fromkeys(("bmm", "baddbmm"), "batched-product"),
    **dict.fromkeys(("copy_", "clone", "_to_copy", "cat", "stack", "repeat", "flip", "roll"), "move"),
    **dict.fromkeys(("index_select", "index", "gather"), "move"),
    **dict.fromkeys(("sum", "mean", "var", "var_mean", "amax", "max", "min"), "reduction"),
    **dict.fromkeys(("linalg_vector_norm", "logsumexp"), "reduction"),
}

FAMILIES = (("batch_norm", "batch-norm"), ("_norm", "group-norm"), ("pool", "pooling"))
"""Substrings of the names of normalisation and pooling operators; the first match applies."""


def kind_of(name: str, arguments: Sequence[Any]) -> str:
    """The kind of an executed operator, by its ATen name without overload and its positional arguments.

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
