"""Multiply-accumulates, floating-point operations and the kind of each operator that PyTorch executes.

Products (convolutions and matrix products) are exact: one multiply-accumulate (MAC) is two FLOPs, a bias one more. The
backward pass of a convolution has the forward pass's MACs for each of the two gradients that are requested, for any
number of groups. Fused operators, such as a recurrent layer or attention on a CPU, have the products that their parts
would have; a complex MAC is four real ones. Other operators mostly move bytes; they count as the arithmetic of a plain
loop over the elements: one FLOP for one function of a number, two for a fused multiply-add. Copies and views are free.
All others count like elementwise ones, and :func:`uncounted` names them.

A device has a separate speed for each kind. Kinds depend on the operator and on the shape of its weights, never on the
batch; their names are :data:`edgefl.operator_kinds.KINDS`.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from edgefl.errors import Note
from edgefl.models.data_dependence import argument_of
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
    return (inputs if transposed else outputs).numel() * math.prod(weight.shape[1:])


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


def _batch_of_products(arguments: Arguments, outputs: Sequence[Tensor]) -> Work:
    macs = arguments[1].numel() * int(outputs[0].shape[-1])
    return Work(macs, 2 * macs + outputs[0].numel())


def _trilinear(arguments: Arguments, _: Sequence[Tensor]) -> Work:
    """Products of three tensors over all of their dimensions, as of a bilinear layer."""
    shapes = [list(tensor.shape) for tensor in arguments[:3]]
    for shape, expanded in zip(shapes, arguments[3:6], strict=True):
        for axis in sorted(expanded):
            shape.insert(axis, 1)
    macs = math.prod(max(sides) for sides in zip(*shapes, strict=True))
    return Work(macs, 3 * macs)


def _distances(pairs: Tensor, of: Tensor, norm: float) -> Work:
    """A difference, a power and a sum for each number of each pair."""
    terms = pairs.numel() * int(of.shape[-1])
    return Work(terms if norm == 2 else 0, 3 * terms)


def _recurrent(rows: int, weights: Iterable[Tensor], ways: int) -> Work:
    """Layers of a recurrent network on ``rows`` inputs; each product once, or for two gradients; then the gates."""
    matrices = [weight for weight in weights if weight.dim() == 2]
    macs = ways * rows * sum(weight.numel() for weight in matrices)
    return Work(macs, 2 * macs + 5 * ways * rows * sum(int(weight.shape[0]) for weight in matrices) // 2)


def _rows(inputs: Tensor) -> int:
    return inputs.numel() // int(inputs.shape[-1])


def _attention(name: str, first: int, products: tuple[int, int]) -> Callable[[Arguments, Sequence[Tensor]], Work]:
    """Products over the features of queries, and over those of values; then a softmax for each pair of places.

    The queries are ``arguments[first]``. Causal attention leaves out what no query of a block of queries may see.
    """
    func = getattr(torch.ops.aten, name).default

    def work(arguments: Arguments, _: Sequence[Tensor]) -> Work:
        query, key, value = arguments[first : first + 3]
        queries, keys = int(query.shape[-2]), int(key.shape[-2])
        block = next((size for least, size in ATTENTION_BLOCKS if queries >= least), 32)
        causal = argument_of(func, "is_causal", arguments)
        seen = (min(start + block, keys) if causal else keys for start in range(0, queries, block))
        rows = (min(block, queries - start) for start in range(0, queries, block))
        pairs = math.prod(query.shape[:-2]) * sum(row * each for row, each in zip(rows, seen, strict=True))
        macs = pairs * (products[0] * int(query.shape[-1]) + products[1] * int(value.shape[-1]))
        return Work(macs, 2 * macs + 5 * pairs)

    return work


def _transform(numbers: int, sides: Iterable[int], factor: float) -> Work:
    """5 N log2 N for each complex transform of N numbers, half of it for a real one."""
    return Work(0, int(factor * numbers * math.log2(max(math.prod(sides), 1))))


ATTENTION_BLOCKS = ((768, 256), (192, 64))
"""Queries in a block of a CPU's attention, from this number of queries on; 32 below."""

ATTENTION = tuple(
    f"_scaled_dot_product_{kernel}"
    for kernel in (
        *("flash_attention_for_cpu", "flash_attention", "efficient_attention", "cudnn_attention"),
        "fused_attention_overrideable",
    )
)

PRODUCTS: Mapping[str, Callable[[Arguments, Sequence[Tensor]], Work]] = {
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot"), _matrix_product(0, added=False)),
    **dict.fromkeys(("addmm", "addmv", "baddbmm", "_addmm_activation"), _matrix_product(1, added=True)),
    "addbmm": _batch_of_products,
    "addr": lambda _, outputs: Work(outputs[0].numel(), 2 * outputs[0].numel()),
    "_trilinear": _trilinear,
    "_euclidean_dist": lambda given, outputs: _distances(outputs[0], given[0], 2),
    "_cdist_forward": lambda given, outputs: _distances(outputs[0], given[0], given[2]),
    "_cdist_backward": lambda given, _: _distances(given[4], given[1], given[3]),
    "_pdist_forward": lambda given, outputs: _distances(outputs[0], given[0], given[1] if len(given) > 1 else 2),
    "_pdist_backward": lambda given, _: _distances(given[3], given[1], given[2]),
    "mkldnn_rnn_layer": lambda given, _: _recurrent(_rows(given[0]), given[1:3], 1),
    "mkldnn_rnn_layer_backward": lambda given, _: _recurrent(_rows(given[0]), given[1:3], 2),
    "_cudnn_rnn": lambda given, _: _recurrent(_rows(given[0]), given[1], 1),
    "_cudnn_rnn_backward": lambda given, _: _recurrent(_rows(given[0]), given[1], 2),
    **{name: _attention(name, 0, (1, 1)) for name in ATTENTION},
    # The backward pass computes the scores again.
    **{f"{name}_backward": _attention(f"{name}_backward", 1, (3, 2)) for name in ATTENTION},
    "_fft_c2c": lambda given, _: _transform(given[0].numel(), (given[0].shape[axis] for axis in given[1]), 5),
    "_fft_r2c": lambda given, _: _transform(given[0].numel(), (given[0].shape[axis] for axis in given[1]), 2.5),
    "_fft_c2r": lambda given, out: _transform(out[0].numel(), (out[0].shape[axis] for axis in given[1]), 2.5),
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
    **dict.fromkeys(("sum", "mean", "prod", "amax", "amin", "max", "min", "argmax", "argmin", "cumsum"), 1),
    **dict.fromkeys(("sort", "topk", "_adaptive_avg_pool2d", "embedding_dense_backward"), 1),
    **dict.fromkeys(("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"), 5),
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

ONE_EACH = frozenset(
    {
        *("mse_loss", "nll_loss_forward", "nll_loss2d_forward", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"),
        *("mse_loss_backward", "nll_loss2d_backward", "smooth_l1_loss_backward", "huber_loss_backward"),
        *("binary_cross_entropy_backward", "hardtanh_backward", "hardsigmoid_backward", "hardswish_backward"),
        *("leaky_relu_backward", "elu_backward", "softplus_backward", "log_sigmoid_forward", "log_sigmoid_backward"),
        *("hardswish", "hardsigmoid", "elu", "glu", "glu_backward", "prelu", "_prelu_kernel", "_prelu_kernel_backward"),
        *("native_dropout", "bernoulli", "bernoulli_", "uniform_", "normal_", "rand", "randn", "randint", "randperm"),
        *("rand_like", "randn_like", "exponential_", "normal", "multinomial", "linspace", "_conj_physical"),
        *("max_pool2d_with_indices_backward", "avg_pool2d_backward", "_adaptive_avg_pool2d_backward"),
        *("any", "all", "scatter_add", "scatter_add_", "index_add", "index_add_", "cumprod", "count_nonzero"),
        *("upsample_nearest2d", "upsample_nearest2d_backward", "bincount", "nonzero", "masked_select", "isfinite"),
        *("_local_scalar_dense", "equal", "sort", "argsort", "_pack_padded_sequence", "_pad_packed_sequence"),
        *("native_dropout_backward", "complex"),
    }
)
"""Operators with one FLOP for each number of the first output that PyTorch does not mark as pointwise."""

POOLS = frozenset({"max_pool2d_with_indices", "max_pool2d", "avg_pool2d"})
"""Operators that reduce a window to one number; the window's sides are their second argument."""


def work_of(name: str, arguments: Arguments, keywords: Mapping[str, Any], outputs: Sequence[Tensor]) -> Work:
    """The work of one executed operator, by its ATen name without overload, e.g. ``"convolution"``.

    >>> import torch
    >>> work_of("mm", (torch.zeros(2, 3), torch.zeros(3, 5)), {}, [torch.zeros(2, 5)])
    Work(macs=30, flops=60)
    """
    first = arguments[0] if arguments and isinstance(arguments[0], Tensor) else None
    is_complex = first is not None and first.is_complex()
    if name in PRODUCTS:
        macs, flops = PRODUCTS[name](arguments, outputs)
        return Work(4 * macs, 4 * flops) if is_complex and macs else Work(macs, flops)
    if name in OPTIMIZERS or name.startswith(FOREACH):
        return Work(0, OPTIMIZERS.get(name, 1) * sum(tensor.numel() for tensor in arguments[0]))
    if name in MOVES or not outputs:
        return Work(0, 0)
    factor = 1 if not is_complex else 6 if name.removesuffix("_") in ("mul", "div", "addcmul", "prod") else 2
    if name in INPUT_FLOPS:
        return Work(0, factor * INPUT_FLOPS[name] * int(arguments[0].numel()))
    return Work(0, factor * _each(name, arguments, keywords) * outputs[0].numel())


FOREACH = "_foreach_"
"""Operators on lists of tensors, as optimizers use them: one FLOP for each number of the first list."""

OPTIMIZERS: Mapping[str, int] = {"_fused_sgd_": 4, "_fused_adagrad_": 8, "_fused_adam_": 14, "_fused_adamw_": 14}
"""FLOPs for each parameter of fused optimizers: those of the same step in single operators, without weight decay."""


def uncounted(operators: Iterable[Any]) -> dict[str, float]:
    """The share of all bytes of each operator whose arithmetic is not known, largest first.

    ``operators`` have a name, bytes and a count, as :class:`~edgefl.cost.measure.Operator`.
    """
    moved: Counter[str] = Counter()
    for each in operators:
        moved[each.name] += each.bytes * each.count
    total = sum(moved.values()) or 1.0
    return {name: bytes / total for name, bytes in moved.most_common() if not is_counted(name)}


def note_uncounted(operators: Iterable[Any]) -> None:
    """Name the operators whose arithmetic is not known, in a note that equals that of the next method."""
    if found := sorted(uncounted(operators)):
        message = f"operators without a formula, counted as one FLOP for each number: {', '.join(found)}"
        warnings.warn(message, Note, stacklevel=1)  # from one place, so that it is shown once


@cache
def is_counted(name: str) -> bool:
    """True if the operator has a formula, moves numbers, or is a function of single numbers."""
    tables = (PRODUCTS, MOVES, INPUT_FLOPS, OUTPUT_FLOPS, ONE_EACH, POOLS, OPTIMIZERS)
    if name.startswith(FOREACH) or any(each in table for table in tables for each in (name, name.removesuffix("_"))):
        return True
    packet = getattr(torch.ops.aten, name, None)
    return packet is not None and any(
        torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads()
    )


def _each(name: str, arguments: Arguments, keywords: Mapping[str, Any]) -> int:
    if name in POOLS:
        height, width = (list(arguments[1]) * 2)[:2]
        return int(height * width)
    if name in ("native_batch_norm", "cudnn_batch_norm") and not arguments[5]:
        return 2  # scale and shift, where it does not train
    if name in OUTPUT_FLOPS:
        return OUTPUT_FLOPS[name]
    return 2 if keywords.get("alpha", 1) != 1 else 1


BY_NAME: Mapping[str, str] = {
    **dict.fromkeys(("mm", "mv", "dot", "vdot", "addmm", "addmv", "addr", "_addmm_activation"), "matrix-product"),
    **dict.fromkeys(("bmm", "baddbmm", "addbmm", "_trilinear"), "batched-product"),
    **dict.fromkeys((name for name in PRODUCTS if "dist" in name), "batched-product"),
    **dict.fromkeys(("copy_", "clone", "_to_copy", "cat", "stack", "repeat", "flip", "roll"), "move"),
    **dict.fromkeys(("index_select", "index", "gather"), "move"),
    **dict.fromkeys(("sum", "mean", "var", "var_mean", "amax", "max", "min"), "reduction"),
    **dict.fromkeys(("linalg_vector_norm", "logsumexp"), "reduction"),
}

FAMILIES = (
    *(("batch_norm", "batch-norm"), ("_norm", "group-norm"), ("pool", "pooling")),
    *(("_scaled_dot_product", "attention"), ("_rnn", "recurrent")),
)
"""Substrings of the names of operators with forward and backward kinds; the first match applies."""


def loops_of(name: str, arguments: Sequence[Any], outputs: Sequence[Tensor]) -> tuple[int, int]:
    """The groups over which a convolution's backward pass may loop, and the pixels of its output images; 0 if none."""
    if name == "convolution":
        return 0, math.prod(outputs[0].shape[2:])
    if name == "convolution_backward":
        return (groups if (groups := int(arguments[9])) > 1 else 0), math.prod(arguments[0].shape[2:])
    return 0, 0


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
