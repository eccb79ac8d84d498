"""The base class of feature skews: transformations of inputs that differ from client to client."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from edgefl.component import Component
from edgefl.data.samples import Kind

if TYPE_CHECKING:
    from torch import Tensor

Numbers = NDArray[np.float64]


class FeatureSkew(Component):
    """A transformation of each client's inputs (``data.feature_skew``); its fields are its options.

    Attributes:
        inputs: the kinds of inputs that it can transform.
    """

    inputs: ClassVar[tuple[Kind, ...]]

    kind: str

    @abstractmethod
    def draw(self, clients: int, rng: np.random.Generator) -> Numbers:
        """The parameters of each client's transformation, ``[clients, parameters]``."""

    @abstractmethod
    def apply(self, inputs: Tensor, parameters: Tensor, rng: np.random.Generator) -> Tensor:
        """The transformed inputs, with the same type and shape.

        Args:
            inputs: ``[n, …]`` in main memory, as they are stored: bytes of images, or float32 numbers.
            parameters: those of each sample's client, float64 ``[n, parameters]``.
            rng: for draws of each sample.
        """


def per_sample(values: Tensor, inputs: Tensor) -> Tensor:
    """One float32 number for each sample, ``[n]``, in a shape that is broadcast over its inputs ``[n, …]``."""
    return values.float().view(-1, *[1] * (inputs.dim() - 1))


def as_bytes(pixels: Tensor) -> Tensor:
    """Pixels in units of 1/255, rounded and limited to 0 … 255."""
    return pixels.round_().clamp_(0, 255).byte()
