"""No compression: numbers are sent as float32."""

import numpy as np
import torch
from torch import Tensor

from edgefl.methods.codecs.base import CODECS, Codec, Encoded
from edgefl.models.layout import FLOAT_BYTES


@CODECS.register("none")
class NoCodec(Codec):
    """Four bytes per number."""

    exact = True

    def bytes(self, shape: torch.Size) -> int:
        return FLOAT_BYTES * shape.numel()

    def encode(self, tensor: Tensor, numbers: np.random.Generator) -> Encoded:
        return {"values": tensor}

    def decode(self, encoded: Encoded, shape: torch.Size) -> Tensor:
        return encoded["values"]
