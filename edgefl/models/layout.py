"""The places of a model's tensors in one flat vector, so that deltas and momenta are plain vector algebra.

It has the parameters, then the buffers, that are trained or sent: those with a gradient, and floating-point buffers of
the state dict; shared tensors once. The rest (frozen parameters, tables, counters) is constant. Weights of 2-D
convolutions ``[outputs, inputs, height, width]`` are stored channels-last, as convolutions read them.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from edgefl.errors import UserError

Weights = tuple[dict[str, Tensor], ...]
"""One mapping from tensor name to tensor per block; names are relative to the block's module."""


class Frozen(dict[str, Tensor]):
    """The tensors of a block that must not change: a call with them does not update running statistics."""


FLOAT_BYTES = 4
"""Bytes of one number on the wire: models are sent as float32."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of the model: its block, its name there, its shape, and its offset in its part of the vector."""

    block: int
    name: str
    shape: torch.Size
    start: int

    @property
    def numel(self) -> int:
        return self.shape.numel()

    def view(self, flat: Tensor) -> Tensor:
        """The tensor ``[..., *shape]`` as a view of a vector ``[..., numel]``."""
        lead = flat.shape[:-1]
        if len(self.shape) != 4:
            return flat.reshape((*lead, *self.shape))
        outputs, inputs, height, width = self.shape
        return flat.reshape(*lead, outputs, height, width, inputs).movedim(-1, -3)

    def flat(self, tensor: Tensor) -> Tensor:
        """The numbers ``[..., numel]`` of a tensor ``[..., *shape]`` in the order of the vector."""
        if len(self.shape) == 4:
            tensor = tensor.movedim(-3, -1)
        return tensor.flatten(-len(self.shape)) if self.shape else tensor.unsqueeze(-1)


Numbers = Tensor | int | None
"""The kept numbers of a dimension: these, the first ones, or all."""


def taken(tensor: Tensor, each: Sequence[Numbers]) -> Tensor:
    """The part of a tensor with the kept numbers of each of its dimensions; first ones are a view."""
    for place, numbers in enumerate(each):
        if isinstance(numbers, int):
            tensor = tensor.narrow(place, 0, numbers)
        elif numbers is not None:
            tensor = tensor.index_select(place, numbers.to(tensor.device))
    return tensor


FROZEN = "stays_in_evaluation"
"""The attribute of a layer that stays in evaluation: true if an option such as ``trainable`` freezes it, so that its
buffers are constant too, and false if its module's own ``train()`` keeps it so."""


def switch(module: nn.Module, *, training: bool) -> None:
    """Set a module to training or evaluation by its own methods; frozen layers stay in evaluation."""
    (module.train if training else module.eval)()
    for layer in module.modules():
        layer.training &= FROZEN not in layer.__dict__


def variables(block: nn.Module) -> Iterator[tuple[str, Tensor, bool]]:
    """The name and tensor of each parameter and then each buffer of a model's vector; True for a parameter."""
    for name, parameter in block.named_parameters():
        if parameter.requires_grad:
            yield name, parameter, True
    for prefix, module in block.named_modules():
        if module.__dict__.get(FROZEN):
            continue
        # Without a momentum, batch norm averages over all batches, so it needs their number.
        counts = isinstance(module, _NormBase) and module.momentum is None
        for name, buffer in module.named_buffers(prefix, recurse=False):
            if name.rpartition(".")[2] in module._non_persistent_buffers_set:
                continue
            # A mean of infinite numbers, such as those of a mask, is none.
            if counts or (buffer.is_floating_point() and bool(torch.isfinite(buffer).all())):
                yield name, buffer, False


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a module by name; a shared one has several names."""
    parameters, buffers = (each(remove_duplicate=False) for each in (module.named_parameters, module.named_buffers))
    return {**dict(parameters), **dict(buffers)}


def grouped(blocks: Iterable[nn.Module], module: nn.Module | None = None) -> Iterator[tuple[int, str, Tensor, bool]]:
    """Each tensor of a vector once: its first block (the last one for what only ``module`` has), name, parameter."""
    seen, index = set[int](), 0
    parts = [*enumerate(blocks)]
    for index, part in [*parts, *([] if module is None else [(len(parts) - 1, module)])]:
        for name, tensor, is_parameter in variables(part):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield index, name, tensor, is_parameter


class Layout:
    """The order of a model's tensors in a vector of ``size`` numbers: parameters by block, then buffers by block.

    Args:
        local: names ``block.tensor`` of the tensors that each client keeps for itself: they are not sent.
        module: see :func:`grouped`.
        unused: names of parameters that no output depends on: an optimizer leaves them as they are.

    Attributes:
        local: the places of the local tensors in the whole vector; those of ``local_parameters`` come first.
    """

    def __init__(
        self,
        blocks: Mapping[str, nn.Module],
        local: Collection[str] = (),
        *,
        module: nn.Module | None = None,
        unused: Collection[str] = (),
    ) -> None:
        self.block_names: tuple[str, ...] = tuple(blocks)
        self.parameters: list[Entry] = []
        self.buffers: list[Entry] = []
        self.parameter_count = 0
        self.buffer_count = 0
        for index, name, tensor, is_parameter in grouped(blocks.values(), module):
            if is_parameter:
                self.parameters.append(Entry(index, name, tensor.shape, self.parameter_count))
                self.parameter_count += tensor.numel()
            else:
                self.buffers.append(Entry(index, name, tensor.shape, self.buffer_count))
                self.buffer_count += tensor.numel()
        self.unused = {self.name_of(each) for each in self.parameters if each.name in unused}
        self._local = frozenset(local)
        self.local_parameters = [self._place(each, 0) for each in self.parameters if self.is_local(each)]
        at = self.parameter_count
        self.local = self.local_parameters + [self._place(each, at) for each in self.buffers if self.is_local(each)]

    @staticmethod
    def _place(entry: Entry, offset: int) -> slice:
        return slice(offset + entry.start, offset + entry.start + entry.numel)

    def name_of(self, entry: Entry) -> str:
        """The name ``block.tensor``."""
        return f"{self.block_names[entry.block]}.{entry.name}"

    def is_local(self, entry: Entry) -> bool:
        return self.name_of(entry) in self._local

    @property
    def entries(self) -> list[Entry]:
        return [*self.parameters, *self.buffers]

    @property
    def size(self) -> int:
        return self.parameter_count + self.buffer_count

    def block_bytes(self) -> tuple[int, ...]:
        """Bytes on the wire of each block, without local tensors."""
        sizes = [0] * len(self.block_names)
        for entry in self.entries:
            sizes[entry.block] += 0 if self.is_local(entry) else FLOAT_BYTES * entry.numel
        return tuple(sizes)

    def split(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        """The parameters ``[..., parameter_count]`` and the buffers ``[..., buffer_count]`` of ``[..., size]``."""
        return vector[..., : self.parameter_count], vector[..., self.parameter_count :]

    def before(self, first: int) -> tuple[int, int]:
        """Number of parameters and of buffers in the blocks before block ``first`` (0-based)."""
        return (
            sum(entry.numel for entry in self.parameters if entry.block < first),
            sum(entry.numel for entry in self.buffers if entry.block < first),
        )

    def weights(
        self, parameters: Tensor, buffers: Tensor | None = None, *, front: Tensor | None = None, first: int = 0
    ) -> Weights:
        """Views of flat parameters (and buffers) as named tensors; leading dimensions are kept.

        ``front`` are the parameters before block ``first``, which are :class:`Frozen`. The gradient with respect to the
        flat parameters is one concatenation, not a sum of slices.
        """
        blocks: Weights = tuple(Frozen() if index < first else {} for index in range(len(self.block_names)))
        halves = [([entry for entry in self.parameters if entry.block >= first], parameters)]
        if front is not None:
            halves.append(([entry for entry in self.parameters if entry.block < first], front))
        if buffers is not None:
            halves.append((self.buffers, buffers))
        for entries, flat in halves:
            if not entries:
                continue
            pieces = torch.split_with_sizes(flat, [entry.numel for entry in entries], dim=-1)
            for entry, piece in zip(entries, pieces, strict=True):
                blocks[entry.block][entry.name] = entry.view(piece)
        return blocks

    def frozen(self, parameters: Tensor, buffers: Tensor) -> Weights:
        """Views of flat parameters and buffers as the named tensors of a frozen model; see :class:`Frozen`."""
        return tuple(Frozen(block) for block in self.weights(parameters, buffers))

    def vector(self, blocks: Sequence[Mapping[str, Tensor]]) -> Tensor:
        """The parameters ``[..., parameter_count]`` of named tensors, without buffers; differentiable, one copy."""
        return torch.cat([entry.flat(blocks[entry.block][entry.name]) for entry in self.parameters], dim=-1)

    def flatten(self, blocks: Sequence[Mapping[str, Tensor]]) -> Tensor:
        """The vector ``[size]`` of named tensors, a copy."""
        pieces = [entry.flat(blocks[entry.block][entry.name].detach()).float() for entry in self.entries]
        return torch.cat(pieces) if pieces else torch.zeros(0)

    def splice(self, front: Tensor, tail: Tensor, first: int) -> Tensor:
        """Blocks ``0 … first-1`` of ``front`` and ``first … M-1`` of ``tail``, both ``[..., size]`` (0-based)."""
        result, count = front.clone(), self.parameter_count
        parameters, buffers = self.before(first)
        for place in (slice(parameters, count), slice(count + buffers, None)):
            result[..., place] = tail[..., place]
        return result

    def with_local_part(self, model: Tensor, own: Tensor) -> Tensor:
        """A copy of a model ``[size]`` with other local tensors, one after another in ``own``."""
        result = model.clone()
        sizes = [place.stop - place.start for place in self.local]
        for place, tensor in zip(self.local, torch.split_with_sizes(own, sizes), strict=True):
            result[place] = tensor
        return result

    def local_part(self, model: Tensor) -> Tensor:
        """The local tensors of a model ``[size]``, one after another."""
        return torch.cat([model[place] for place in self.local])


def digest_of_model(vector: Tensor) -> str:
    """32 hexadecimal digits of the SHA-256 of a model's bytes ``[size]``, which identify it on every device."""
    numbers = vector.detach().cpu().contiguous().view(torch.uint8).numpy()
    return hashlib.sha256(numbers.data).hexdigest()[:32]


def content_of(tensor: Tensor) -> str:
    """A digest of a tensor's values, dtype and shape.

    >>> zeros = torch.zeros(2)
    >>> content_of(zeros.clone()) == content_of(zeros), content_of(-zeros) == content_of(zeros)
    (True, False)
    """
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return f"{tensor.dtype} {tuple(tensor.shape)} {hashlib.sha256(flat.numpy().data).hexdigest()}"


def matching(names: Iterable[str], patterns: Iterable[str], *, field: str, what: str = "parameters") -> set[str]:
    """The names of tensors that patterns mean: their own or that of a module that contains them; ``*`` is any text.

    >>> sorted(matching(["head.weight", "head.bias", "stem.weight"], ["head"], field="trainable"))
    ['head.bias', 'head.weight']
    """
    known, chosen = list(names), set[str]()
    for pattern in patterns:
        found = [name for name in known if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")]
        if not found:
            modules = ", ".join(dict.fromkeys(name.partition(".")[0] for name in known))
            raise UserError(f"'{pattern}' names no {what}; expected submodules, such as: {modules}", field=field)
        chosen.update(found)
    return chosen
