"""The base class of codecs, which encode a tensor for sending and decode it at the receiver, and no compression."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from edgefl.errors import WrongAnswer, one_line
from edgefl.models.layout import FLOAT_BYTES
from edgefl.options import Component
from edgefl.registry import Registry, class_of

Encoded = Mapping[str, Tensor]
"""Tensors by name, whose bytes are the bytes on the wire."""


class Codec(Component):
    """The encoding of each float32 tensor of a model, of a size known before training; its fields are options."""

    exact: ClassVar[bool] = False
    for_changes: ClassVar[bool] = False
    """It is suitable only for changes of a model, which are mostly small, and not for models."""

    @property
    def remembers(self) -> bool:
        """True if a client adds the residual of an upload to the next one (error feedback)."""
        return False

    @abstractmethod
    def bytes(self, shape: torch.Size) -> int:
        """Bytes of :meth:`encode`'s tensors for a tensor of that shape, independent of its numbers."""

    @abstractmethod
    def encode(self, tensor: Tensor, numbers: np.random.Generator) -> Encoded:
        """The encoded form of ``tensor`` (float32, not empty); random choices are drawn from ``numbers``."""

    @abstractmethod
    def decode(self, encoded: Encoded, shape: torch.Size) -> Tensor:
        """The decoded tensor: float32 ``[*shape]``."""


def sent_bytes(codec: Codec, shape: torch.Size) -> int:
    """Bytes of a tensor of that shape under a codec."""
    size = codec.bytes(shape)
    if not isinstance(size, int) or size < 0:
        raise WrongAnswer(f"bytes returned {one_line(size)}; expected a whole number, 0 or more")
    return size


def carried(codec: Codec, tensor: Tensor, numbers: np.random.Generator) -> Tensor:
    """A tensor as received: encoded and decoded."""
    shape, kind = tensor.shape, (tensor.dtype, tensor.shape, tensor.device)
    encoded = codec.encode(tensor, numbers)
    if not isinstance(encoded, Mapping) or not all(isinstance(each, Tensor) for each in encoded.values()):
        raise WrongAnswer(f"encode returned {one_line(encoded)}; expected tensors by name")
    size = sum(each.nbytes for each in encoded.values())
    if size != sent_bytes(codec, shape):
        raise WrongAnswer(f"encode returned {size} bytes for a tensor {list(shape)}; bytes says {codec.bytes(shape)}")
    decoded = codec.decode(encoded, shape)
    if not isinstance(decoded, Tensor):
        raise WrongAnswer(f"decode returned {one_line(decoded)}; expected a tensor")
    if (decoded.dtype, decoded.shape, decoded.device) != kind:
        found = f"{decoded.dtype} {list(decoded.shape)}".removeprefix("torch.")
        raise WrongAnswer(f"decode returned a tensor of {found}; expected float32 {list(shape)}")
    return decoded


CODECS: Registry[type[Codec]] = Registry(
    "codec", package="edgefl.methods.codecs", group="edgefl.codecs", check=class_of(Codec)
)


@CODECS.register("none")
class NoCodec(Codec):
    """No compression: four bytes per number, as float32."""

    exact = True

    def bytes(self, shape: torch.Size) -> int:
        return FLOAT_BYTES * shape.numel()

    def encode(self, tensor: Tensor, numbers: np.random.Generator) -> Encoded:
        return {"values": tensor}

    def decode(self, encoded: Encoded, shape: torch.Size) -> Tensor:
        return encoded["values"]
