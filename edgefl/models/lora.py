"""Low-rank adapters (LoRA; Hu et al., ICLR 2022), which are trained and sent in place of a model's weights."""

import math
import warnings
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from edgefl.errors import UserError, first_line, nearest, optional
from edgefl.options import Component

BASE = "base_layer"
"""The name of an adapted layer's own weights in peft."""


Base = Literal["float32", "bfloat16", "int8", "int4"]

BITS: Mapping[Base, float] = {"float32": 32, "bfloat16": 16, "int8": 8.5, "int4": 4.127}
"""Bits of a number of the frozen base on a device, with the scales of its blocks.

``int4``: NF4 in blocks of 64 numbers with doubly quantised scales, 4 + 8/64 + 32/(64 · 256) (QLoRA; Dettmers et al.,
NeurIPS 2023, section 3). ``int8``: blocks of 32 numbers with a scale of 16 bits, as ggml's Q8_0. It is assumed that
both hold all matrices, embeddings too, and no vectors (scales of norms, biases), which stay float32.
"""


class Lora(Component):
    """Adapters of layers: the product of two small matrices is added to a frozen weight matrix."""

    packages: ClassVar[tuple[str, ...]] = ("peft",)
    rank: int = Field(default=8, ge=1, description="rank of the added product")
    alpha: float = Field(default=16, gt=0, description="the product is multiplied by alpha / rank")
    targets: tuple[str, ...] = Field(min_length=1, description="names of the adapted layers, or their ends; * any text")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="share of an adapter's inputs that are dropped")
    base: Base = Field("float32", description="how devices store the frozen weights; here it changes nothing")
    base_sent: Literal["once", "installed"] = Field("installed", description="once: the first downlink has the base")

    def stored_rows(self, shape: Sequence[int]) -> tuple[int, int]:
        """The numbers in a row of a frozen tensor, and the bytes of a row on a device.

        >>> lora = Lora(targets=["*"], base="int4")
        >>> lora.stored_rows((1000, 768)), lora.stored_rows((9,))
        ((768, 397), (1, 4))
        """
        bits = BITS[self.base]
        if bits >= 16 or len(shape) < 2:
            return 1, 2 if bits == 16 else 4
        row = math.prod(shape[1:])
        return row, math.ceil(row * bits / 8)

    def stored_bytes(self, shape: Sequence[int]) -> int:
        """Bytes of a frozen tensor on a device."""
        row, bytes = self.stored_rows(shape)
        return math.prod(shape) // row * bytes


def add_adapters(module: nn.Module, lora: Lora) -> None:
    """Add adapters to a module, in place, and freeze everything else."""
    peft = optional("peft", "peft", field="lora")
    targets = _targets(module, lora.targets)
    options = {"r": lora.rank, "lora_alpha": lora.alpha, "lora_dropout": lora.dropout}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a layer of transformers stores its matrix transposed
        try:
            peft.inject_adapter_in_model(peft.LoraConfig(target_modules=targets, **options), module)
        except (ValueError, TypeError, RuntimeError) as error:
            raise UserError(f"peft cannot adapt these layers: {first_line(error)}", field="lora") from None


def without_adapters(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of a module as it is without its adapters."""
    return {without_base(name): each for name, each in state.items() if ".lora_" not in name}


def without_base(name: str) -> str:
    """The name of a tensor in the module without adapters.

    >>> without_base("fc.base_layer.bias")
    'fc.bias'
    """
    return name.replace(f".{BASE}.", ".")


def _targets(module: nn.Module, names: tuple[str, ...]) -> list[str]:
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding)
    # transformers' Conv1D is a linear layer with a transposed matrix.
    known = (
        (name, isinstance(each, kinds) or type(each).__name__ == "Conv1D") for name, each in module.named_modules()
    )
    layers = [name for name, adaptable in known if name and adaptable]
    chosen: dict[str, None] = {}
    for name in names:
        found = [each for each in layers if fnmatchcase(each, name) or fnmatchcase(each, f"*.{name}")]
        if not found:
            ends = {each.rpartition(".")[2] for each in layers}
            hint = nearest(name, {*layers, *ends} if len(layers) < 12 else ends) if layers else "it has none"
            raise UserError(f"'{name}' names no layer that can be adapted; {hint}", field="lora.targets")
        chosen.update(dict.fromkeys(found))
    return list(chosen)
