"""The initial values of a block's tensors, drawn from a given generator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from edgefl.models.slimmable import Conv2d


@runtime_checkable
class Initialises(Protocol):
    """A module that draws the initial values of its own tensors (for layers of plug-ins)."""

    initialise: Callable[[Mapping[str, Tensor], torch.Generator], None]
    """Fills the module's own tensors, given by name, in place."""


def initialise(block: nn.Module, tensors: Mapping[str, Tensor], generator: torch.Generator) -> None:
    """Fill the tensors of a block in place, module by module in the order of definition.

    Convolutions and linear layers use PyTorch's defaults; embeddings draw N(0, 1); norms start with scale 1, shift 0,
    running mean 0 and running variance 1.

    Args:
        block: the module.
        tensors: its parameters and buffers by name, views of the vector to fill.
        generator: the random generator.

    Raises:
        TypeError: a module with its own tensors is of an unknown kind and has no ``initialise`` method.
    """
    with torch.no_grad():
        for path, module in block.named_modules():
            prefix = f"{path}." if path else ""
            names = [name for name, _ in module.named_parameters(recurse=False)]
            names += [name for name, _ in module.named_buffers(recurse=False)]
            own = {name: tensors[prefix + name] for name in names if prefix + name in tensors}
            if own:
                _fill(module, own, generator)


def _fill(module: nn.Module, own: Mapping[str, Tensor], generator: torch.Generator) -> None:
    if isinstance(module, Initialises):
        module.initialise(own, generator)
    elif isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
        _fill_layer(module, own, generator)
    elif isinstance(module, nn.Embedding):
        own["weight"].normal_(generator=generator)
    elif "weight" not in own or own["weight"].ndim == 1:
        for name, tensor in own.items():
            tensor.fill_(1.0 if name in ("weight", "running_var") else 0.0)
    else:
        raise TypeError(
            f"no initial values are known for {type(module).__name__}; give it a method initialise(tensors, generator)"
        )


def _fill_layer(module: nn.Module, own: Mapping[str, Tensor], generator: torch.Generator) -> None:
    weight = own["weight"]
    if isinstance(module, Conv2d) and module.fan_out:
        nn.init.kaiming_normal_(weight, mode="fan_out", nonlinearity="relu", generator=generator)
        if "bias" in own:
            own["bias"].zero_()
        return
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
    if "bias" in own:
        bound = 1 / math.sqrt(weight[0].numel())
        own["bias"].uniform_(-bound, bound, generator=generator)
