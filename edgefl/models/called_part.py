"""A module that is called with other tensors in the places of its own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from edgefl.models.layout import Frozen, Weights
from edgefl.models.mode import mode
from edgefl.models.module_state import HOOKS, remade, restore

Kind = Literal["buffer", "statistics", "counter"]


class Place(NamedTuple):
    """A tensor's place in a layer, and in the weights (``at``), or a constant; ``kind`` is None if it is passed on."""

    layer: nn.Module
    held: dict[str, Any]
    key: str
    at: tuple[int, str] | None
    kind: Kind | None
    hooks: Sequence[Callable[[Tensor], Tensor | None]]


def given_at(place: Place, tensors: Mapping[str, Tensor]) -> Tensor | None:
    """What a call puts at a place, from the tensors of its block."""
    assert place.at is not None
    given = tensors[place.at[1]]
    if place.kind is None:
        if place.hooks and given.requires_grad:
            given = given.view_as(given)
            for hook in place.hooks:
                given.register_hook(hook)  # type: ignore[no-untyped-call]
        if place.held is place.layer._parameters:
            given._is_param = True  # for isinstance(…, nn.Parameter)
        return given
    if place.kind == "statistics" and place.layer.training and (isinstance(tensors, Frozen) or not mode().track):
        return None  # PyTorch's batch norm then normalises by the batch and updates nothing
    # Under vmap PyTorch updates a copy of running statistics that are not contiguous, as slices of a stack are not.
    return given.clone(memory_format=torch.contiguous_format)


class CalledPart:
    """A module called with other tensors: ``at`` has their blocks and names, ``name`` is that of its own block."""

    def __init__(self, name: str, module: nn.Module, at: Mapping[int, tuple[int, str]]) -> None:
        self.name, self.module = name, module
        self.places: list[Place] = []
        for layer in module.modules():
            kind: Kind | None = None
            if not getattr(layer, "knows_mode", False):
                kind = "statistics" if isinstance(layer, _NormBase) else "buffer"
            for held, of_these in ((layer._parameters, None), (layer._buffers, kind)):
                for key, own in held.items():
                    if own is None:
                        continue
                    place = at.get(id(own))
                    counts = kind == "statistics" and key == "num_batches_tracked"
                    used = of_these if place is not None else "counter" if counts else None
                    hooks = layer.__dict__.get(HOOKS, {}).get(key, ())
                    self.places.append(Place(layer, held, key, place, used, hooks))
        self.updated = [place for place in self.places if place.at is not None and place.kind is not None]
        self.recurrent = [layer for layer in module.modules() if isinstance(layer, nn.RNNBase)]
        self._remade = remade(module)

    def tensors(self) -> list[Any]:
        return [place.held[place.key] for place in self.places]

    def keep_updates(self, weights: Weights) -> None:
        """Write the buffers of layers after a call into the tensors that it got, but not those of a frozen model."""
        for place in self.updated:
            assert place.at is not None
            block, name = place.at
            if not isinstance(weights[block], Frozen):
                weights[block][name].copy_(place.held[place.key])

    def put_back(self, tensors: Sequence[Any]) -> None:
        """End a call: its tensors are these again, and attributes that calls make anew have their own values."""
        for place, tensor in zip(self.places, tensors, strict=True):
            place.held[place.key] = tensor
        restore(self._remade)
