"""What a codec is: how a tensor becomes the bytes that travel, and what the other end reads out of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

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


CODECS: Registry[type[Codec]] = Registry(
    "codec", package="edgefl.learning.codecs", group="edgefl.codecs", check=class_of(Codec)
)
"""Every codec by name; ``edgefl.codecs`` entry points add to it."""
