"""Half as many bits: numbers are sent in a shorter floating-point format."""

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.codecs.base import CODECS, Codec, Encoded

HALF_BYTES = 2


@CODECS.register("cast")
class Cast(Codec):
    """Rounds each number to the nearest in a 16-bit format.

    ``float16`` keeps 11 bits, and larger numbers than 65504 are clamped; ``bfloat16`` keeps 8 bits and the range of
    float32.

    >>> Cast(to="bfloat16").bytes(torch.Size([3, 5]))
    30
    """

    to: Literal["float16", "bfloat16"] = Field(default="float16", description="float16 (finer) or bfloat16 (wider)")

    def bytes(self, shape: torch.Size) -> int:
        return HALF_BYTES * shape.numel()

    def encode(self, tensor: Tensor, numbers: np.random.Generator) -> Encoded:
        kind = torch.float16 if self.to == "float16" else torch.bfloat16
        # Only finite numbers are clamped, so that a diverged model is still detected.
        held = tensor.clamp(torch.finfo(kind).min, torch.finfo(kind).max)
        return {"values": torch.where(tensor.isfinite(), held, tensor).to(kind)}

    def decode(self, encoded: Encoded, shape: torch.Size) -> Tensor:
        return encoded["values"].float()
