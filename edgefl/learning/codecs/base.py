"""What a codec is: how a tensor becomes the bytes that travel, and what the other end reads out of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from edgefl.errors import WrongAnswer, one_line
from edgefl.learning.component import Component
from edgefl.registry import Registry, class_of

Encoded = Mapping[str, Tensor]
"""What travels of one tensor, by name; the bytes of these tensors are the bytes on the wire."""


class Codec(Component):
    """How a tensor of float32 numbers is sent; its fields are its options.

    A model's tensors are encoded one by one, so what each needs is known before anything is trained.
    """

    exact: ClassVar[bool] = False
    """Whether what comes out is what went in, to the bit."""
    for_changes: ClassVar[bool] = False
    """Whether it makes sense for changes of a model alone, which are mostly small, and not for models."""

    @property
    def remembers(self) -> bool:
        """Whether a client adds what it could not send to what it sends the next time (error feedback)."""
        return False

    @abstractmethod
    def bytes(self, shape: torch.Size) -> int:
        """Bytes of :meth:`encode`'s tensors for a tensor of that shape, whatever its numbers are."""

    @abstractmethod
    def encode(self, tensor: Tensor, numbers: np.random.Generator) -> Encoded:
        """What travels of ``tensor`` (float32, not empty); random choices come from ``numbers``."""

    @abstractmethod
    def decode(self, encoded: Encoded, shape: torch.Size) -> Tensor:
        """What the other end makes of it: float32 ``[*shape]``."""


def sent_bytes(codec: Codec, shape: torch.Size) -> int:
    """Bytes of a tensor of that shape under a codec.

    Raises:
        WrongAnswer: the codec says something else than a number of bytes.
    """
    size = codec.bytes(shape)
    if not isinstance(size, int) or size < 0:
        raise WrongAnswer(f"bytes returned {one_line(size)}; expected a whole number, 0 or more")
    return size


def carried(codec: Codec, tensor: Tensor, numbers: np.random.Generator) -> Tensor:
    """What arrives of a tensor: encoded, and decoded again.

    Raises:
        WrongAnswer: what travels has another size than the codec says, or what arrives another shape or type.
    """
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
    "codec", package="edgefl.learning.codecs", group="edgefl.codecs", check=class_of(Codec)
)
"""Every codec by name; ``edgefl.codecs`` entry points add to it."""
