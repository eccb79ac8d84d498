"""Few bits per number: whole multiples of a scale."""

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.codecs.base import CODECS, Codec, Encoded
from edgefl.models.layout import FLOAT_BYTES


@CODECS.register("quantise")
class Quantise(Codec):
    """x ≈ s·q with whole q in [-L, L], L = 2^(bits-1) - 1, and s = max|x| / L.

    The error of ``nearest`` is at most s/2. ``stochastic`` rounds up or down with probabilities for which the mean is
    x; its error is less than s (QSGD, Alistarh et al. 2017, Sec. 3.1, with the largest magnitude in place of the
    Euclidean norm). Zero stays zero. A scale is sent for the whole tensor or, if it has more than one dimension, for
    each of its outputs.

    >>> Quantise(bits=4).bytes(torch.Size([3, 5])), Quantise(bits=8, scale="channel").bytes(torch.Size([3, 5]))
    (12, 27)
    """

    bits: Literal[8, 4] = Field(default=8, description="bits per number: 8 or 4")
    scale: Literal["tensor", "channel"] = Field(default="tensor", description="one scale per tensor or per output")
    rounding: Literal["nearest", "stochastic"] = Field("nearest", description="to the nearest, or without bias")

    @property
    def levels(self) -> int:
        return int(2 ** (self.bits - 1)) - 1

    def bytes(self, shape: torch.Size) -> int:
        return -(-shape.numel() * self.bits // 8) + FLOAT_BYTES * self._scales(shape)

    def encode(self, tensor: Tensor, numbers: np.random.Generator) -> Encoded:
        """Levels as int8, or two in a uint8."""
        rows = tensor.reshape(self._scales(tensor.shape), -1)
        scales = rows.abs().amax(dim=1) / self.levels
        divisors = torch.where(scales > 0, scales, 1.0).unsqueeze(1)
        exact = rows / divisors
        if self.rounding == "stochastic":
            chances = torch.from_numpy(numbers.random(rows.shape, dtype=np.float32)).to(rows.device)
            levels = (exact + chances).floor()
        else:
            levels = exact.round()
        levels = levels.clamp(-self.levels, self.levels).to(torch.int8).flatten()
        return {"levels": _paired(levels) if self.bits == 4 else levels, "scales": scales}

    def decode(self, encoded: Encoded, shape: torch.Size) -> Tensor:
        levels = encoded["levels"]
        if self.bits == 4:
            levels = _single(levels)[: shape.numel()]
        scales = encoded["scales"]
        return (levels.reshape(len(scales), -1) * scales.unsqueeze(1)).reshape(shape)

    def _scales(self, shape: torch.Size) -> int:
        return shape[0] if self.scale == "channel" and len(shape) > 1 else 1


def _paired(levels: Tensor) -> Tensor:
    """The first level is in the lower half; for an odd number, the last byte is half empty."""
    halves = (levels + 8).to(torch.uint8)
    if len(halves) % 2:
        halves = torch.cat([halves, halves.new_zeros(1)])
    return halves[0::2] | (halves[1::2] << 4)


def _single(pairs: Tensor) -> Tensor:
    return torch.stack([pairs & 15, pairs >> 4], dim=1).flatten().to(torch.int8) - 8
