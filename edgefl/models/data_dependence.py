"""Operators whose result or size depends on numbers in a tensor: those that PyTorch tags, and those that it misses."""

from collections.abc import Iterable, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload

from edgefl.errors import EdgeflError

_TAGS = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})

_UNTAGGED = frozenset({"equal", "is_nonzero", "_pack_padded_sequence", "_pad_packed_sequence"})
"""Operators without a tag that return, or take as a size, a number in a tensor."""

_BY_SIZE_GIVEN = {"repeat_interleave": "output_size", "one_hot": "num_classes"}
"""Tagged operators whose result size is fixed if this argument is given."""


class DataDependence(NamedTuple):
    """Why an operator depends on data, for the author of a loss: a call as written in Python, and an alternative."""

    call: str
    instead: str


NEEDS_DATA = DataDependence(
    "a function that reads the numbers in a tensor (NumPy, .tolist(), or another that PyTorch cannot run without data)",
    "use functions of PyTorch that keep them tensors",
)

_A_NUMBER = DataDependence(
    "a function that reads a number out of a tensor (.item(), float(tensor) or a condition on a tensor)",
    "keep it a tensor, with torch.where in place of a condition",
)

_ADVICE = {
    **dict.fromkeys(("_local_scalar_dense", "item", "is_nonzero", "equal"), _A_NUMBER),
    "index": DataDependence("indexing by a mask (x[mask])", "use torch.where(mask, x, 0), and divide by mask.sum()"),
}


def data_dependence(
    operator: OpOverload, arguments: Sequence[Any], keywords: Mapping[str, Any] | None = None
) -> DataDependence | None:
    """Why the result of an operator, or its size, depends on numbers in these arguments; ``None`` if it does not.

    >>> x = torch.ones(3)
    >>> data_dependence(torch.ops.aten.index.Tensor, (x, [x > 0])).call
    'indexing by a mask (x[mask])'
    """
    name = operator._schema.name.partition("::")[2]
    if not _TAGS.intersection(operator.tags) and name not in _UNTAGGED:
        return None
    if name == "index" and all(each is None or each.dtype not in (torch.bool, torch.uint8) for each in arguments[1]):
        return None  # no mask
    size = _BY_SIZE_GIVEN.get(name)
    if size is not None and argument_of(operator, size, arguments, keywords) not in (None, -1):
        return None
    return _ADVICE.get(
        name,
        DataDependence(
            name.strip("_2"), "use one whose result has a fixed size, such as torch.where or one_hot(labels, classes)"
        ),
    )


def argument_of(
    operator: OpOverload, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any] | None = None
) -> Any:
    """The value of an operator's argument, given or by default; ``None`` if it has no such argument."""
    for place, argument in enumerate(operator._schema.arguments):
        if argument.name == name:
            return arguments[place] if place < len(arguments) else (keywords or {}).get(name, argument.default_value)
    return None


class DataDependentError(EdgeflError):
    """Operators of the part ``whose`` depend on data, so they cannot be counted without; ``reason``: the message."""

    def __init__(self, dependence: DataDependence, method: str = "", whose: str = "its loss or local rule") -> None:
        self.dependence = dependence
        self.reason = (
            f"{whose} calls {dependence.call}: what it executes then depends on the data, and the cost "
            f"of a local step is counted without data; {dependence.instead}"
        )
        super().__init__(f"method '{method}': {self.reason}" if method else self.reason)


def whose(frames: Iterable[FrameType]) -> str:
    """The part whose code runs in these frames: the model if they include a call of a block."""
    names = ((frame.f_globals.get("__name__"), frame.f_code.co_name) for frame in frames)
    return "its model" if ("edgefl.models.block_model", "_called") in names else "its loss or local rule"
