"""A model split into consecutive blocks, called with weights as arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from types import FrameType
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from edgefl.models.classifier import Classifier
from edgefl.models.layout import Entry, Frozen, Layout, Numbers, Weights, is_frozen, taken, variables
from edgefl.models.mode import Mode, mode, using
from edgefl.models.module_state import remade, restore
from edgefl.models.random_layers import RandomFunctions, ViewsAsReshapes
from edgefl.models.residual import Residual
from edgefl.models.slimmable import Conv2d, Linear
from edgefl.tasks.base import Task
from edgefl.tasks.classification import Classification


class Nested(NamedTuple):
    """A network within a wider one; ``numbers`` are, for each tensor, those of each dimension that belong to it."""

    model: BlockModel
    numbers: Sequence[tuple[Entry, Sequence[Numbers]]]

    def weights(self, wider: Weights) -> Weights:
        """Its tensors as differentiable parts of the wider network's; consecutive numbers are views."""
        layout = self.model.layout
        blocks: Weights = tuple({} for _ in layout.block_names)
        for entry, numbers in self.numbers:
            blocks[entry.block][entry.name] = taken(wider[entry.block][entry.name], numbers)
        for block, name, entry in layout.shared:
            blocks[block][name] = blocks[entry.block][entry.name]
        return blocks


_SAME = (
    *("sample_shape", "classes", "align_block", "first_values", "copied", "random", "whole", "tokens", "local"),
    *("input_type", "reshapes", "task"),
)
"""The arguments of a model that one with other blocks has too."""


class BlockModel(nn.Module):
    """A skeleton of M consecutive blocks; it defines shapes, and weights are passed to every call.

    Args:
        blocks: the blocks by name, in order; the output of one is the input of the next, and the last one's output are
            the logits ``[batch, classes]``, or the outputs that the task needs. The tap of a block is its output. Taps
            stay feature maps where possible: pooling or flattening belongs to the block that needs it.
        sample_shape: shape of one input without the batch dimension, e.g. ``(1, 28, 28)``.
        classes: number of classes, or of outputs that the task needs.
        align_block: index (0-based, at least 1) of FedAlign's block L, whose narrower sub-block also runs and whose
            input and output taps are compared; both taps are feature maps ``[batch, channels, height, width]``.
        first_values: the initial values of a model whose layers draw them: a function from a seed to the tensors by
            block and name; by default they are drawn by the kinds of the layers.
        copied: names of blocks that write to their input in place, which therefore get a copy of it.
        random: True if its layers draw random numbers while it trains.
        whole: why the model could not be split into more blocks, if it could not.
        tokens: the number of tokens of an embedding, for models whose inputs are integers below it.
        pretrained: values by block and name that replace the initial ones; ``None``: not read yet.
        input_type: the type of inputs: float32, or int64 for an ordinary module that takes tokens.
        reshapes: True if its layers view tensors whose order in memory does not allow it.
        local: names ``block.tensor`` of the tensors that each client keeps for itself.

    The skeleton's own tensors are only a seeded starting point (see ``edgefl.models.registry.build_model``).
    """

    def __init__(
        self,
        blocks: Mapping[str, nn.Module],
        *,
        sample_shape: tuple[int, ...],
        classes: int,
        align_block: int,
        first_values: Callable[[int], Mapping[str, Mapping[str, Tensor]]] | None = None,
        copied: frozenset[str] = frozenset(),
        random: bool = False,
        whole: str | None = None,
        tokens: int | None = None,
        pretrained: Mapping[str, Mapping[str, Tensor]] | None = None,
        local: Collection[str] = (),
        input_type: torch.dtype = torch.float32,
        reshapes: bool = False,
        task: Task | None = None,
    ) -> None:
        super().__init__()
        self.pretrained = pretrained
        self.first_values = first_values
        self.copied = copied
        self.random = random
        self.whole = whole
        self.tokens = tokens
        self.input_type = input_type
        self.reshapes = reshapes
        self.task = task or Classification()
        self.blocks = nn.ModuleDict(blocks)
        self.sample_shape = sample_shape
        self.classes = classes
        self.align_block = align_block
        self.keep_local(local)
        self.nested: Sequence[Nested] = ()
        """Narrower networks within it that its loss runs with its tensors, widest first."""
        self._find_places()
        residuals = [module for block in self._sequence for module in block.modules() if isinstance(module, Residual)]
        for index, residual in enumerate(residuals):
            residual.index = index
        self.residual_count = len(residuals)
        """Number of residual blocks that Stochastic Depth can drop."""

    def with_blocks(self, blocks: Mapping[str, nn.Module], new: Collection[str]) -> BlockModel:
        """The same model with other blocks, of which those named in ``new`` have no first values of their own."""
        same: dict[str, Any] = {name: getattr(self, name) for name in _SAME}
        pretrained = {name: each for name, each in (self.pretrained or {}).items() if name not in new}
        return BlockModel(blocks, pretrained=pretrained, **same)

    def keep_local(self, names: Iterable[str]) -> None:
        """Let each client keep these tensors, ``block.tensor``, for itself."""
        self.local = frozenset(names)
        self.layout = Layout(dict(self.blocks.items()), self.local)

    def _find_places(self) -> None:
        self._sequence = list(self.blocks.values())
        self._places = [_places(block) for block in self._sequence]
        self._frozen = [[module for module in block.modules() if is_frozen(module)] for block in self._sequence]
        self._unfrozen = [
            next((module for module in block.modules() if not is_frozen(module)), None) for block in self._sequence
        ]
        for module in (each for modules in self._frozen for each in modules):
            module.training = False
        self._recurrent = [
            [module for module in block.modules() if isinstance(module, nn.RNNBase)] for block in self._sequence
        ]
        self._remade = [remade(block) for block in self._sequence]
        self._constants: dict[tuple[int, torch.device], Tensor] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Find the tensors again, since unpickling makes other modules of blocks that are graphs."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._find_places()

    @property
    def depth(self) -> int:
        """M, the number of blocks."""
        return len(self._sequence)

    @property
    def slimmable(self) -> bool:
        """True if its layers can run at a smaller width."""
        return any(isinstance(module, Conv2d | Linear) for module in self.blocks.modules())

    def inputs(self, batch: int, device: str | torch.device = "cpu") -> Tensor:
        """Inputs of the right shape and type, all zero."""
        return torch.zeros(batch, *self.sample_shape, dtype=self.input_type, device=device)

    def zero_weights(self) -> Weights:
        # Real tensors: on meta tensors the first normalisation imports PyTorch's compiler (two seconds).
        layout = self.layout
        return layout.weights(
            torch.zeros(layout.parameter_count, device="cpu"), torch.zeros(layout.buffer_count, device="cpu")
        )

    @cached_property
    def tap_shapes(self) -> tuple[torch.Size, ...]:
        """The shape of each block's tap without the batch dimension; the last one is that of the task's outputs."""
        with torch.no_grad(), using(training=False, width=1.0, keep=None, keep_probability=None):
            taps = self.taps(self.zero_weights(), self.inputs(1))
        return tuple(tap.shape[1:] for tap in taps)

    @cached_property
    def feature_size(self) -> int:
        return self.features(torch.empty(1, *self.tap_shapes[-2], device="meta")).shape[1]

    def features(self, tap: Tensor) -> Tensor:
        """The features ``[batch, feature_size]`` in the tap before the last block.

        They are computed by the :class:`Classifier` (pooled or flattened) or, if the last block is not a classifier, as
        the spatial mean of the feature map.
        """
        last = self._sequence[-1]
        if isinstance(last, Classifier):
            return last.embed(tap)
        return tap.flatten(2).mean(dim=-1) if tap.dim() > 2 else tap

    def apply_blocks(self, weights: Weights, inputs: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        """The output of blocks ``start … stop-1`` (0-based) on ``inputs``, under the current mode.

        With ``start=0`` the input is a batch ``[batch, *sample_shape]``, else the tap of block ``start-1``. In the mode
        ``ensemble``, the output of the whole model is the mean of :meth:`exits`.
        """
        if mode().ensemble and start == 0 and stop is None:
            return torch.stack(self.exits(weights, inputs)).mean(dim=0)
        for index in range(start, self.depth if stop is None else stop):
            inputs = self._called(index, weights[index], inputs)
        return inputs

    def exits(self, weights: Weights, inputs: Tensor) -> list[Tensor]:
        """The outputs of internal classifiers, first to last, and of the last block."""
        found: list[Tensor] = []
        with using(exits=found, ensemble=False):
            last = self.apply_blocks(weights, inputs)
        return [*found, last]

    def taps(self, weights: Weights, inputs: Tensor) -> list[Tensor]:
        outputs = []
        for index in range(self.depth):
            inputs = self._called(index, weights[index], inputs)
            outputs.append(inputs)
        return outputs

    def _called(self, index: int, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """The output of one block with its tensors temporarily replaced by these.

        It is ``torch.func.functional_call`` without the search for places, which takes longer than a small operator.
        Layers of PyTorch and other libraries do not read the mode, so it is applied to them from outside: they are set
        to training or evaluation, and update copies of their buffers, which replace the originals if the mode tracks
        statistics.
        """
        if isinstance(weights, Frozen) and mode().track:
            with using(track=False):
                return self._called(index, weights, inputs)
        now, block, places = mode(), self._sequence[index], self._places[index]
        unfrozen = self._unfrozen[index]
        if unfrozen is not None and unfrozen.training is not now.training:
            block.train(now.training)
            for module in self._frozen[index]:
                module.training = False  # not eval(), which would turn off the dropout of trained layers within it
        if self.layout.block_names[index] in self.copied:
            inputs = inputs.clone()
        own = [place.held[place.key] for place in places]
        try:
            for place, tensor in zip(places, own, strict=True):
                constant = place.kind == "constant"
                given = self._constant(tensor, inputs.device) if constant else _given(place, weights, now)
                place.held[place.key] = given
            for layer in self._recurrent[index]:
                layer._flat_weights = [getattr(layer, name) for name in layer._flat_weights_names]
            with ViewsAsReshapes() if self.reshapes else nullcontext():
                output: Tensor = block(inputs)
            if now.track:
                for held, key, name, kind in places:
                    if kind in _UPDATED:
                        weights[name].copy_(held[key])
        finally:
            for place, tensor in zip(places, own, strict=True):
                place.held[place.key] = tensor
            restore(self._remade[index])
        return output

    def hold_constants(self, device: torch.device) -> None:
        """Copy the skeleton's constants to a device, so that no call has to."""
        for place in (each for places in self._places for each in places if each.kind == "constant"):
            self._constant(place.held[place.key], device)

    def _constant(self, tensor: Tensor, device: torch.device) -> Tensor:
        key = id(tensor), device
        if key not in self._constants:
            self._constants[key] = tensor.detach().to(device, copy=True)
        return self._constants[key]

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits with the skeleton's own weights; for use as a plain module."""
        for block in self._sequence:
            inputs = block(inputs)
        return inputs


Kind = Literal["buffer", "statistics", "constant", "counter"]
_UPDATED: tuple[Kind, ...] = ("buffer", "statistics")
"""The kinds of tensors that a layer may update while it trains."""


class _Place(NamedTuple):
    """The place of a tensor in a module.

    ``kind`` is ``None`` for a tensor that is passed unchanged: a parameter, or a buffer of a layer that reads the mode.
    """

    held: dict[str, Any]
    key: str
    name: str
    kind: Kind | None


def _given(place: _Place, weights: Mapping[str, Tensor], now: Mode) -> Tensor | None:
    if place.kind is None:
        return weights[place.name]
    if place.kind == "counter" or (place.kind == "statistics" and now.training and not now.track):
        return None  # PyTorch's batch norm then normalises by the batch and updates nothing
    # Under vmap PyTorch updates a copy of running statistics that are not contiguous, as slices of a stack are not.
    return weights[place.name].clone(memory_format=torch.contiguous_format)


def _places(block: nn.Module) -> list[_Place]:
    """The places of a block's tensors; a shared tensor has the name of its first place, as in ``named_parameters``."""
    places: list[_Place] = []
    names = {id(tensor): name for name, tensor, _ in reversed([*variables(block)])}
    for module in block.modules():
        kind: Kind | None = None
        if not getattr(module, "knows_mode", False):
            kind = "statistics" if isinstance(module, _NormBase) else "buffer"
        for held, of_these in ((module._parameters, None), (module._buffers, kind)):
            for key, own in held.items():
                if own is None:
                    continue
                if id(own) in names:
                    places.append(_Place(held, key, names[id(own)], of_these))
                elif isinstance(module, _NormBase) and key == "num_batches_tracked":
                    places.append(_Place(held, key, key, "counter"))
                else:
                    places.append(_Place(held, key, key, "constant"))
    return places


_REFUSAL = "Expected more than 1 value per channel"


def is_refusal(error: Exception) -> bool:
    """True for the error of PyTorch's batch norm that it got one number per channel."""
    return _REFUSAL in str(error)


def layer_in(frames: Iterable[FrameType], module: nn.Module) -> str:
    """The path of the innermost layer of a module whose code runs in these frames; empty if none does."""
    names = {id(layer): name for name, layer in module.named_modules()}
    return max((names.get(id(frame.f_locals.get("self")), "") for frame in frames), key=len, default="")


def has_library_norms(model: nn.Module) -> bool:
    """True if a model has normalisation layers of PyTorch; those of edgefl take any batch."""
    return any(isinstance(layer, _NormBase) for layer in model.modules())


def takes_one_sample(model: BlockModel) -> bool:
    """True if a local step can have a batch of one sample; the model is called once to find out."""
    if not has_library_norms(model):
        return True
    try:
        with torch.no_grad(), using(training=True, track=False), RandomFunctions(torch.tensor(0)):
            model.apply_blocks(model.zero_weights(), model.inputs(1))
    except ValueError as error:
        if not is_refusal(error):
            raise
        return False
    return True
