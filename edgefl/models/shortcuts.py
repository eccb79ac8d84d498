"""The outputs, without data, of operators that PyTorch computes in Python, which is up to 60 times as slow."""

from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

Arguments = tuple[Any, ...]


def _new(like: Tensor, *shape: int) -> Tensor:
    """Images stay channels-last, because a conversion is a separate copy."""
    last = len(shape) == 4 and _channels_last(like)
    order = torch.channels_last if last else torch.contiguous_format
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=order)


def _channels_last(tensor: Tensor) -> bool:
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()


def _convolution(arguments: Arguments) -> Tensor:
    inputs, weight, _, stride, padding, dilation, transposed, output_padding, groups = arguments
    sides = []
    for axis, side in enumerate(inputs.shape[2:]):
        step, pad, spread = (values[axis % len(values)] for values in (stride, padding, dilation))
        reach = spread * (weight.shape[2 + axis] - 1)
        if transposed:
            sides.append((side - 1) * step - 2 * pad + reach + output_padding[axis % len(output_padding)] + 1)
        else:
            sides.append((side + 2 * pad - reach - 1) // step + 1)
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    return _new(_leading(inputs, weight), inputs.shape[0], channels, *sides)


def _leading(inputs: Tensor, weight: Tensor) -> Tensor:
    """A convolution uses channels-last for images and weight if one of them is channels-last."""
    return weight if weight.dim() == 4 and _channels_last(weight) else inputs


def _convolution_backward(arguments: Arguments) -> tuple[Tensor | None, ...]:
    _, inputs, weight, bias_shape, *_, wanted = arguments
    return _wanted(_leading(inputs, weight), (inputs.shape, weight.shape, bias_shape), wanted)


def _wanted(like: Tensor, shapes: Iterable[Iterable[int]], wanted: Iterable[bool]) -> tuple[Tensor | None, ...]:
    return tuple(_new(like, *shape) if want else None for shape, want in zip(shapes, wanted, strict=True))


def _group_norm(arguments: Arguments) -> tuple[Tensor, ...]:
    inputs, _, _, batch, _, _, groups, _ = arguments
    return _like_first(arguments), _new(inputs, batch, groups), _new(inputs, batch, groups)


def _batch_norm(arguments: Arguments) -> tuple[Tensor, ...]:
    inputs, training = arguments[0], arguments[5]
    statistics = inputs.shape[1] if training else 0
    return _like_first(arguments), _new(inputs, statistics), _new(inputs, statistics)


def _norm_backward(arguments: Arguments) -> tuple[Tensor | None, ...]:
    inputs, wanted = arguments[1], arguments[9]
    return _wanted(inputs, (inputs.shape, inputs.shape[1:2], inputs.shape[1:2]), wanted)


def _like_first(arguments: Arguments) -> Tensor:
    return _new(arguments[0], *arguments[0].shape)


def _regular(tensor: Tensor) -> bool:
    """False for a transposed or cut tensor, whose order the output of an operator on its elements keeps."""
    return tensor.is_contiguous() or _channels_last(tensor) or 0 in tensor.stride()


def _elementwise(arguments: Arguments) -> Tensor | None:
    tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
    return _new(tensors[0], *_broadcast(tensors)) if all(map(_regular, tensors)) else None


def _broadcast(tensors: Iterable[Tensor]) -> list[int]:
    aligned = zip_longest(*(reversed(tensor.shape) for tensor in tensors), fillvalue=1)
    return [next((side for side in sides if side != 1), 1) for sides in aligned][::-1]


def _matrix_product(arguments: Arguments) -> Tensor:
    first, second = arguments[-2:]
    return _new(first, *first.shape[:-1], *second.shape[-1:])


def _nll_loss(arguments: Arguments) -> tuple[Tensor, Tensor]:
    log_probabilities, labels, _, reduction, _ = arguments
    return _new(log_probabilities, *(() if reduction else labels.shape)), _new(log_probabilities)


def _mse_loss(arguments: Arguments) -> Tensor | None:
    elementwise = _elementwise(arguments[:2])
    whole = elementwise is None or (len(arguments) > 2 and arguments[2] == 0)
    return elementwise if whole else _new(arguments[0])


def _max_pool(arguments: Arguments) -> tuple[Tensor, Tensor]:
    inputs, kernel = arguments[:2]
    defaults: Arguments = (None, (0,), (1,), False)
    stride, padding, dilation, ceiling = (*arguments[2:], *defaults[len(arguments) - 2 :])
    sides = []
    for axis, side in enumerate(inputs.shape[-2:]):
        window, pad, spread = (values[axis % len(values)] for values in (kernel, padding, dilation))
        step = stride[axis % len(stride)] if stride else window
        extra = side + 2 * pad - spread * (window - 1) - 1 + (step - 1 if ceiling else 0)
        count = extra // step + 1
        # A window that starts in the padding after the image is dropped.
        sides.append(count - 1 if ceiling and (count - 1) * step >= side + pad else count)
    values = _new(inputs, *inputs.shape[:-2], *sides)
    return values, torch.empty(values.shape, dtype=torch.int64, device=inputs.device)


def _cat(arguments: Arguments) -> Tensor:
    pieces, axis = arguments[0], arguments[1] if len(arguments) > 1 else 0
    pieces = [each for each in pieces if each.shape != (0,)] or pieces  # PyTorch skips these
    shape = list(pieces[0].shape)
    shape[axis] = sum(piece.shape[axis] for piece in pieces)
    return _new(pieces[0], *shape)


def _stack(arguments: Arguments) -> Tensor:
    pieces, axis = arguments[0], arguments[1] if len(arguments) > 1 else 0
    shape = list(pieces[0].shape)
    shape.insert(axis % (len(shape) + 1), len(pieces))
    return _new(pieces[0], *shape)


def _in_place(arguments: Arguments) -> Tensor:
    changed: Tensor = arguments[0]
    if _broadcast(each for each in arguments if isinstance(each, Tensor)) != list(changed.shape):
        raise RuntimeError(f"an operand is larger than the tensor {list(changed.shape)} that it should change in place")
    return changed


def _reduction(dimensions: int) -> Callable[[Arguments], Tensor]:
    """A reduction over the dimensions in that argument, by default all; the next argument is ``keepdim``."""

    def reduced(arguments: Arguments) -> Tensor:
        inputs, (over, keep) = arguments[0], (*arguments[dimensions : dimensions + 2], None, False)[:2]
        chosen = {axis % inputs.dim() for axis in ([over] if isinstance(over, int) else over or range(inputs.dim()))}
        sides = [1 if axis in chosen else side for axis, side in enumerate(inputs.shape) if keep or axis not in chosen]
        return _new(inputs, *sides)

    return reduced


def _lstm_layer(arguments: Arguments) -> tuple[Tensor, ...]:
    """A layer of an LSTM in one direction, as oneDNN computes it, and what it keeps for the backward pass."""
    inputs, hidden_state, cell, hidden = arguments[0], arguments[5], arguments[6], arguments[10]
    steps, batch, features = inputs.shape
    own = steps * 5 * hidden + (steps + 1) * 4 * hidden  # the others are float32, also where inputs have 2 bytes
    kept = batch * (inputs.element_size() * own + 4 * (steps + 1) * 6 * max(features, hidden)) if arguments[15] else 0
    workspace = torch.empty(kept, dtype=torch.uint8, device=inputs.device)
    return _new(inputs, steps, batch, hidden), _new(hidden_state, batch, hidden), _new(cell, batch, hidden), workspace


def _recurrent_layers(arguments: Arguments) -> tuple[Tensor, ...]:
    """Layers of cuDNN; a device keeps their gates and states for the backward pass."""
    inputs, hidden_state, cell, mode, size, projected, layers, batch_first, _, train, both = (
        arguments[place] for place in (0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    )
    places, ways, outputs = inputs.shape[:2].numel(), 1 + both, projected or size
    gates = {2: 4, 3: 3}.get(mode, 1)
    kept = places * ways * layers * (gates + 2) * size * inputs.element_size() if train else 0
    batch = inputs.shape[0 if batch_first else 1]
    return (
        _new(inputs, *inputs.shape[:2], ways * outputs),
        _new(hidden_state, ways * layers, batch, outputs),
        _new(inputs, 0) if cell is None else _new(cell, ways * layers, batch, size),
        torch.empty(kept, dtype=torch.uint8, device=inputs.device),
        _new(inputs, 0),
    )


def _recurrent_layers_backward(arguments: Arguments) -> tuple[Tensor | list[Tensor] | None, ...]:
    weights, hidden_state, cell = (arguments[place] for place in (1, 4, 5))
    of_cell = None if cell is None else _new(cell, *cell.shape)
    gradients = [_new(each, *each.shape) for each in weights]
    return _like_first(arguments), _new(hidden_state, *hidden_state.shape), of_cell, gradients


SHORTCUTS: Mapping[str, Callable[[Arguments], Any]] = {
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _norm_backward,
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _norm_backward,
    "mkldnn_rnn_layer": _lstm_layer,
    "_cudnn_rnn": _recurrent_layers,
    "_cudnn_rnn_backward": _recurrent_layers_backward,
    "addmm": _matrix_product,
    "mm": _matrix_product,
    "bmm": _matrix_product,
    "nll_loss_forward": _nll_loss,
    "nll_loss_backward": lambda arguments: _like_first(arguments[1:]),
    "mse_loss": _mse_loss,
    "mse_loss_backward": lambda arguments: _elementwise(arguments[1:3]),
    "max_pool2d_with_indices": _max_pool,
    "max_pool2d_with_indices_backward": lambda arguments: _like_first(arguments[1:]),
    **dict.fromkeys(
        ("add", "sub", "mul", "div", "pow", "neg", "sqrt", "rsqrt", "exp", "log", "clamp", "reciprocal"), _elementwise
    ),
    **dict.fromkeys(("add_", "sub_", "mul_", "div_"), _in_place),
    "cat": _cat,
    "stack": _stack,
    "sum": _reduction(1),
    "mean": _reduction(1),
    "linalg_vector_norm": _reduction(2),
    **dict.fromkeys(
        ("ones_like", "zeros_like", "relu", "_log_softmax", "_softmax"), lambda given: _elementwise(given[:1])
    ),
    **dict.fromkeys(
        ("threshold_backward", "_log_softmax_backward_data", "_softmax_backward_data"),
        lambda given: _elementwise(given[:2]),
    ),
}
"""Outputs from positional arguments, by the operator's name; for floating-point calls without a dtype argument.

``None`` where PyTorch must compute the output.
"""
