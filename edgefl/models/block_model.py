"""A model split into consecutive blocks, called with weights as arguments."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from edgefl.errors import UserError
from edgefl.models.called_part import CalledPart, given_at
from edgefl.models.classifier import Classifier
from edgefl.models.fake import Fake, WithoutNumbers
from edgefl.models.layout import FROZEN, Entry, Frozen, Layout, Numbers, Weights, grouped, switch, taken
from edgefl.models.lora import Lora
from edgefl.models.mode import mode, using
from edgefl.models.random_layers import UsedMasks, ViewsAsReshapes
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
        blocks: Weights = tuple({} for _ in self.model.layout.block_names)
        for entry, numbers in self.numbers:
            blocks[entry.block][entry.name] = taken(wider[entry.block][entry.name], numbers)
        return blocks


Names = Literal["blocks", "module", "trained part"]


class BlockModel(nn.Module):
    """A skeleton of M consecutive blocks; it defines shapes, and weights are passed to every call.

    Args:
        blocks: the blocks by name, in order; the output of one is the input of the next, and the last one's output are
            the logits ``[batch, classes]``, or the outputs that the task needs. The tap of a block is its output. Taps
            stay feature maps where possible: pooling or flattening belongs to the block that needs it.
        module: the ordinary module of which the blocks are a view. A call of the whole model is a call of it, and its
            ``train()`` sets the layers to training or evaluation. ``None``: the blocks in a row are the model.
        sample_shape: shape of one input without the batch dimension, e.g. ``(1, 28, 28)``.
        classes: number of classes, or of outputs that the task needs.
        align_block: index (0-based, at least 1) of FedAlign's block L, whose narrower sub-block also runs and whose
            input and output taps are compared; both taps are feature maps ``[batch, channels, height, width]``.
        names: the tensors of its files and options: ``block.tensor``; all names of the module's state dict; or only
            what is trained, with the names that it has without adapters.
        fresh: makes the ordinary module again, with the values that its layers draw with a seed; by default values are
            drawn by the kinds of the layers.
        random: True if its layers draw random numbers.
        recomputes: True if a backward pass calls layers again (activation checkpointing).
        unused: see :class:`~edgefl.models.layout.Layout`.
        whole: why the model could not be split into more blocks, if it could not.
        tokens: the number of tokens of an embedding, for models whose inputs are integers below it.
        input_type: the type of inputs: float32, or int64 for an ordinary module that takes tokens.
        reshapes: True if its layers view tensors whose order in memory does not allow it.
        lora: the adapters that are trained in place of its frozen weights, if it has any.

    The skeleton's own tensors are only a seeded starting point (see ``edgefl.models.registry.build_model``).
    """

    def __init__(
        self,
        blocks: Mapping[str, nn.Module],
        *,
        sample_shape: tuple[int, ...],
        classes: int,
        align_block: int,
        module: nn.Module | None = None,
        names: Names = "blocks",
        fresh: Callable[[int], nn.Module] | None = None,
        random: bool = False,
        recomputes: bool = False,
        unused: Collection[str] = (),
        whole: str | None = None,
        tokens: int | None = None,
        input_type: torch.dtype = torch.float32,
        reshapes: bool = False,
        lora: Lora | None = None,
    ) -> None:
        super().__init__()
        self.sample_shape, self.classes, self.align_block = sample_shape, classes, align_block
        self.input_type, self.tokens, self.lora = input_type, tokens, lora
        self.random, self.recomputes, self.reshapes = random, recomputes, reshapes
        self.names, self.whole, self.fresh, self.unused = names, whole, fresh, frozenset(unused)
        self.task: Task = Classification()
        self.copied = frozenset[str]()
        """Names of blocks that write to their input in place, which therefore get a copy of it."""
        self.pretrained: Mapping[str, Mapping[str, Tensor]] | None = None
        """Values by block and name that replace the initial ones; ``None``: not read yet."""
        self.local = frozenset[str]()
        """Names ``block.tensor`` of the tensors that each client keeps for itself."""
        self.numbers = True
        """False if its large tensors have shapes only, on the device ``meta``."""
        self.new = frozenset[str]()
        """Blocks that a method added to those of the module."""
        self._split_into(blocks, module)

    def _split_into(self, blocks: Mapping[str, nn.Module], module: nn.Module | None) -> None:
        self.blocks, self.module = nn.ModuleDict(blocks), module
        self.keep_local(self.local)
        self.nested: Sequence[Nested] = ()
        """Narrower networks within it that its loss runs with its tensors, widest first."""
        self._of_transformers = any(type(layer).__module__.startswith("transformers.") for layer in self.modules())
        self._find_places()
        residuals = [each for block in self._sequence for each in block.modules() if isinstance(each, Residual)]
        for index, residual in enumerate(residuals):
            residual.index = index
        self.residual_count = len(residuals)
        """Number of residual blocks that Stochastic Depth can drop."""

    def with_blocks(
        self, blocks: Mapping[str, nn.Module], new: Collection[str], module: nn.Module | None = None
    ) -> BlockModel:
        """The same model with other blocks, of which those named in ``new`` have no first values of their own."""
        model = copy.copy(self)
        model._modules = {}
        model.__dict__.pop("tap_shapes", None)
        model.pretrained = {name: each for name, each in (self.pretrained or {}).items() if name not in new}
        model.new = self.new.union(new)
        model._split_into(blocks, module)
        return model

    def again(self) -> BlockModel:
        """The same model and modules, for other local tensors and constants of its own."""
        return self.with_blocks(dict(self.blocks.items()), (), self.module)

    def keep_local(self, names: Iterable[str]) -> None:
        """Let each client keep these tensors, ``block.tensor``, for itself."""
        self.local = frozenset(names)
        self.layout = Layout(dict(self.blocks.items()), self.local, module=self.module, unused=self.unused)

    def _find_places(self) -> None:
        self._sequence = list(self.blocks.values())
        at = {id(each): (index, name) for index, block in enumerate(self.own) for name, each in block.items()}
        self._parts = [CalledPart(name, block, at) for name, block in self.blocks.items()]
        self._whole = None if self.module is None else CalledPart(self._parts[0].name, self.module, at)
        for layer in self.modules():
            layer.training &= FROZEN not in layer.__dict__
        others = (each for part in self._parts for each in part.module.modules() if FROZEN not in each.__dict__)
        self._marker = next(others, self.blocks)
        self._constants: dict[tuple[int, torch.device], Tensor] = {}
        self._held: list[tuple[CalledPart, Weights, list[Any], bool]] | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Find the tensors again, since unpickling makes other modules of blocks that are graphs."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._find_places()

    @property
    def depth(self) -> int:
        """M, the number of blocks."""
        return len(self._sequence)

    @property
    def own(self) -> Weights:
        """The skeleton's own tensors."""
        blocks: Weights = tuple({} for _ in self._sequence)
        for index, name, each, _ in grouped(self._sequence, self.module):
            blocks[index][name] = each
        return blocks

    @property
    def slimmable(self) -> bool:
        """True if its layers can run at a smaller width."""
        return any(isinstance(module, Conv2d | Linear) for module in self.blocks.modules())

    def inputs(self, batch: int) -> Tensor:
        """Inputs of the right shape and type, all zero."""
        return torch.zeros(batch, *self.sample_shape, dtype=self.input_type, device="cpu")

    def calls(self) -> AbstractContextManager[object]:
        """The context in which it can be called outside of a count: without numbers if it has none."""
        return nullcontext() if self.numbers else WithoutNumbers()

    def zero_weights(self) -> Weights:
        # Real tensors: on meta tensors the first normalisation imports PyTorch's compiler (two seconds).
        layout = self.layout
        return layout.weights(
            torch.zeros(layout.parameter_count, device="cpu"), torch.zeros(layout.buffer_count, device="cpu")
        )

    @cached_property
    def tap_shapes(self) -> tuple[torch.Size, ...]:
        """The shape of each block's tap without the batch dimension; the last one is that of the task's outputs."""
        with torch.no_grad(), using(training=False, width=1.0, keep=None, keep_probability=None), self.calls():
            return tuple(tap.shape[1:] for tap in self.taps(self.zero_weights(), self.inputs(1)))

    def features(self, tap: Tensor) -> Tensor:
        """The features ``[batch, features]`` in the tap before the last block, a Classifier's or a spatial mean."""
        last = self._sequence[-1]
        if isinstance(last, Classifier):
            return last.embed(tap)
        return tap.flatten(2).mean(dim=-1) if tap.dim() > 2 else tap

    def apply_blocks(self, weights: Weights, inputs: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        """The output of blocks ``start … stop-1`` (0-based) on ``inputs``, under the current mode.

        With ``start=0`` the input is a batch ``[batch, *sample_shape]``, else the tap of block ``start-1``. In the mode
        ``ensemble``, the output of the whole model is the mean of :meth:`exits`.
        """
        if start == 0 and stop is None:
            if mode().ensemble:
                return torch.stack(self.exits(weights, inputs)).mean(dim=0)
            if self._whole is not None:
                return self._called(self._whole, weights, inputs)
        for index in range(start, self.depth if stop is None else stop):
            inputs = self._block(index, weights, inputs)
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
            inputs = self._block(index, weights, inputs)
            outputs.append(inputs)
        return outputs

    def _block(self, index: int, weights: Weights, inputs: Tensor) -> Tensor:
        track = mode().track and not isinstance(weights[index], Frozen)
        with nullcontext() if track is mode().track else using(track=False):
            return self._called(self._parts[index], weights, inputs)

    def _called(self, part: CalledPart, weights: Weights, inputs: Tensor) -> Tensor:
        """The output of a module with its tensors temporarily replaced by these.

        It is ``torch.func.functional_call`` without the search for places, which takes longer than a small operator.
        Layers of PyTorch and other libraries do not read the mode, so it is applied to them from outside: they are set
        to training or evaluation, and update copies of their buffers, kept if the mode tracks statistics.
        """
        now, before = mode(), self._marker.training
        self._switch(now.training)
        if part.name in self.copied:
            inputs = inputs.clone()
        held, again = self._held if torch.is_grad_enabled() else None, self.recomputes and torch.is_grad_enabled()
        if again and (held is None or (held and held[-1][1] is not weights)):
            raise UserError(
                "the model computes activations again in the backward pass (activation checkpointing), which is only "
                "possible for a loss that runs this one model; leave it out, or choose another method"
            )
        own, given = part.tensors(), dict[tuple[int, str], Tensor | None]()
        try:
            for place, tensor in zip(part.places, own, strict=True):
                if place.at is None:
                    place.held[place.key] = None if place.kind == "counter" else self.constant(tensor, inputs.device)
                    continue
                if place.at not in given:
                    given[place.at] = given_at(place, weights[place.at[0]])
                place.held[place.key] = given[place.at]
            for layer in part.recurrent:
                layer._flat_weights = [getattr(layer, name) for name in layer._flat_weights_names]
            with (
                ViewsAsReshapes() if self.reshapes else nullcontext(),
                UsedMasks() if self._of_transformers else nullcontext(),
            ):
                output: Tensor = part.module(inputs)
            if now.track:
                part.keep_updates(weights)
        finally:
            if held is None:
                part.put_back(own)
                if self._held:  # whose layers may be called again
                    self._switch(before)
            else:
                held.append((part, weights, own, now.track))
        return output

    def _switch(self, training: bool) -> None:
        if self._marker.training is not training:
            for each in self.children():
                switch(each, training=training)

    @contextmanager
    def held(self) -> Iterator[None]:
        """In this context, tensors of differentiable calls stay in the module if its backward pass calls it again."""
        if not self.recomputes:
            yield
            return
        self._held = []
        try:
            with ViewsAsReshapes() if self.reshapes else nullcontext():
                yield
        finally:
            for part, weights, own, track in reversed(self._held):
                if track:  # layers that were called again have updated their buffers again
                    part.keep_updates(weights)
                part.put_back(own)
            self._held = None

    @contextmanager
    def having(self, vector: Tensor) -> Iterator[nn.Module]:
        """The whole module, which has the values of a model ``[size]`` in this context."""
        assert self._whole is not None
        weights, own = self.layout.weights(*self.layout.split(vector)), self._whole.tensors()
        try:
            for place, tensor in zip(self._whole.places, own, strict=True):
                place.held[place.key] = tensor if place.at is None else weights[place.at[0]][place.at[1]]
            yield self._whole.module
        finally:
            self._whole.put_back(own)

    def constants(self) -> Iterator[tuple[Tensor, bool]]:
        """The skeleton's constants; True for a frozen parameter."""
        for part in [*self._parts, *([] if self._whole is None else [self._whole])]:
            for place in part.places:
                if place.at is None and place.kind is None:
                    yield place.held[place.key], place.held is place.layer._parameters

    def frozen_base(self) -> list[Tensor]:
        """The frozen parameters of a model with adapters; none of others."""
        constants = () if self.lora is None else self.constants()
        return list({id(each): each for each, is_parameter in constants if is_parameter}.values())

    @property
    def base_bytes(self) -> int:
        """Bytes of the frozen parameters as a device stores them, see ``lora.base``."""
        lora = self.lora
        return 0 if lora is None else sum(lora.stored_bytes(each.shape) for each in self.frozen_base())

    def constant(self, tensor: Tensor, device: torch.device) -> Tensor:
        """What its calls on a device get for a constant of the skeleton."""
        key = id(tensor), device
        if key not in self._constants:
            own = tensor.detach()
            self._constants[key] = Fake.of(own) if own.device.type == "meta" else own.to(device, copy=True)
        return self._constants[key]

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits with the skeleton's own weights; for use as a plain module."""
        for block in self._sequence if self.module is None else [self.module]:
            inputs = block(inputs)
        return inputs
