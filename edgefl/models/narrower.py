"""A narrower network: the same layers with some channels of each group, as a skeleton of its own."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from traceback import walk_tb
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from edgefl.errors import UserError, first_line
from edgefl.models.block_model import BlockModel, Nested
from edgefl.models.channels import Axis, kept_numbers, layer_in, sizes_of, traced_axes
from edgefl.models.layout import Entry, Numbers, grouped, taken
from edgefl.models.mode import using
from edgefl.models.norm import GroupNorm

Rounding = Literal["up", "down"]


def kept_count(count: int, share: float, rounding: Rounding = "up") -> int:
    """The channels or blocks, of ``count``, in a part of that share: ⌈share · count⌉ or ⌊share · count⌋, at least one.

    >>> kept_count(10, 0.25), kept_count(10, 0.25, "down"), kept_count(10, 0.7), kept_count(3, 0.1, "down")
    (3, 2, 7, 1)
    """
    exact = round(share * count, 9)  # 0.7 · 10 is not exactly 7
    return max(1, int(exact) if rounding == "down" else -int(-exact // 1))


class Cut:
    """A model with a share of the channels of each group.

    Args:
        share: the share of the channels, in (0, 1].

    Attributes:
        model: the narrower skeleton; its tensors have the names and the order of the whole model's.
    """

    def __init__(self, whole: BlockModel, share: float, rounding: Rounding = "up") -> None:
        self._whole = whole
        self._axes = traced_axes(whole)
        sizes = sizes_of([axis for axes in self._axes for axis in axes])
        if not sizes:
            message = "the model cannot be trained at a smaller width: no layer has channels that can be left out"
            raise UserError(message)
        self._counts = {group: (size, kept_count(size, share, rounding)) for group, size in sizes.items()}
        self._known: tuple[int, Tensor] | None = None
        self.model = self._narrow()

    @property
    def outputs(self) -> frozenset[str]:
        """The names ``block.layer`` of the convolutions and linear layers of which channels are left out."""
        layout, found = self._whole.layout, set()
        for entry, axes in zip(layout.entries, self._axes, strict=True):
            path, _, name = entry.name.rpartition(".")
            if name == "weight" and len(axes) > 1 and sizes_of(axes[:1]):
                found.add(".".join(filter(None, (layout.block_names[entry.block], path))))
        return frozenset(found)

    def places(self, shift: int = 0) -> Tensor:
        """The place of each number in the whole vector, int64 ``[size]``; of C channels, from ``shift`` mod C on."""
        if self._known is None or self._known[0] != shift:
            layout = self._whole.layout
            numbers = torch.arange(layout.size)
            whole = layout.weights(*layout.split(numbers))
            pieces = [
                entry.flat(chosen)
                for entry, chosen in zip(self.model.layout.entries, self._chosen(whole, shift), strict=True)
            ]
            self._known = shift, torch.cat(pieces)
        return self._known[1]

    def within(self, wider: Cut) -> Nested:
        """This network as a part of a wider cut of the same model; both have the first channels of each group."""
        kept = {group: torch.arange(count) for group, (_, count) in self._counts.items()}
        numbers: list[tuple[Entry, list[Numbers]]] = []
        for entry, axes in zip(self._whole.layout.entries, self._axes, strict=True):
            narrower = [
                tuple(
                    each if each.group is None else each._replace(channels=wider._counts[each.group][1])
                    for each in axis
                )
                for axis in axes
            ]
            numbers.append((entry, [_numbers(axis, kept) for axis in narrower]))
        return Nested(self.model, numbers)

    def _chosen(self, weights: tuple[Mapping[str, Tensor], ...], shift: int) -> list[Tensor]:
        kept = {group: (shift + torch.arange(count)) % size for group, (size, count) in self._counts.items()}
        return [
            taken(weights[entry.block][entry.name], [_numbers(axis, kept) for axis in axes])
            for entry, axes in zip(self._whole.layout.entries, self._axes, strict=True)
        ]

    def _narrow(self) -> BlockModel:
        whole = self._whole
        blocks, module = copy.deepcopy((dict(whole.blocks.items()), whole.module))
        found = [*grouped(blocks.values(), module)]
        keys = [(entry.block, entry.name) for entry in whole.layout.entries]
        chosen = dict(zip(keys, self._chosen(whole.own, 0), strict=True))
        smaller: dict[int, Tensor] = {}
        for index, name, tensor, is_parameter in found:
            values = chosen[index, name].detach().clone()
            smaller[id(tensor)] = nn.Parameter(values) if is_parameter else values
        parts = [*blocks.values(), *([] if module is None else [module])]
        for layer in dict.fromkeys(each for part in parts for each in part.modules()):
            before = {name: tensor.shape for name, tensor in layer.named_parameters(recurse=False)}
            for held in (layer._parameters, layer._buffers):
                for key, old in held.items():
                    if old is not None and id(old) in smaller:
                        held[key] = smaller[id(old)]  # type: ignore[assignment]
            _resize(layer, before)
        model = whole.with_blocks(blocks, (), module)
        model.fresh, model.pretrained = None, None
        self._try(model)
        return model

    def _try(self, model: BlockModel) -> None:
        shape = (2, *self._whole.tap_shapes[-1])
        try:
            with torch.no_grad(), using(training=False, track=False, width=1.0, keep=None), model.calls():
                found = tuple(model.apply_blocks(model.zero_weights(), model.inputs(2)).shape)
        except Exception as error:  # noqa: BLE001  (whatever the module's code raises)
            layer = layer_in((frame for frame, _ in walk_tb(error.__traceback__)), model.blocks)
            raise UserError(
                f"the model cannot be trained at a smaller width: its layer '{layer}' does not take fewer channels "
                f"({first_line(error)})"
            ) from None
        if found != shape:
            raise UserError(f"the model cannot be trained at a smaller width: it then returns {found}, not {shape}")


def _numbers(axis: Axis, kept: Mapping[int, Tensor]) -> Numbers:
    if not sizes_of([axis]):
        return None
    numbers = kept_numbers(axis, kept)
    return len(numbers) if torch.equal(numbers, torch.arange(len(numbers))) else numbers


def _resize(layer: Any, before: Mapping[str, torch.Size]) -> None:
    """Set the sizes that a layer keeps besides its tensors."""
    weight = layer._parameters.get("weight")
    if weight is None:
        return
    if isinstance(layer, _ConvNd):
        if layer.groups > 1:  # depthwise
            layer.groups = weight.shape[0]
        layer.out_channels, layer.in_channels = weight.shape[0], weight.shape[1] * layer.groups
    elif isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = weight.shape
    elif isinstance(layer, nn.Embedding):
        layer.embedding_dim = weight.shape[1]
    elif isinstance(layer, GroupNorm):
        layer.groups, layer.channels = layer.groups_of(weight.shape[0]), weight.shape[0]
    elif isinstance(layer, _NormBase):
        layer.num_features = weight.shape[0]
    elif isinstance(layer, nn.GroupNorm):
        layer.num_groups = GroupNorm(layer.num_groups, before["weight"][0]).groups_of(weight.shape[0])
        layer.num_channels = weight.shape[0]
    elif isinstance(layer, nn.LayerNorm):
        layer.normalized_shape = tuple(weight.shape)
