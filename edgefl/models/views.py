"""Views of tensors whose memory has another order than their author expects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode


class ViewsAsReshapes(TorchFunctionMode):
    """Lets ``tensor.view(sizes)`` copy where it cannot be a view.

    Convolutions here store channels last, so that ``maps.view(batch, -1)``, which is common in ordinary modules, would
    be an error.

    >>> import torch
    >>> maps = torch.arange(8).view(1, 2, 2, 2).to(memory_format=torch.channels_last)
    >>> with ViewsAsReshapes():
    ...     maps.view(1, -1).tolist()
    [[0, 1, 2, 3, 4, 5, 6, 7]]
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is Tensor.view and not kwargs and isinstance(args[1], int | tuple | list):
            return args[0].reshape(*args[1:])
        if func is Tensor.view_as:
            return args[0].reshape(args[1].shape)
        return func(*args, **(kwargs or {}))
