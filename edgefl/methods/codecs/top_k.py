"""Few numbers: the largest ones and their positions."""

import math

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.codecs.base import CODECS, Codec, Encoded
from edgefl.models.layout import FLOAT_BYTES

INDEX_BYTES = 4


@CODECS.register("top_k")
class TopK(Codec):
    """The k = ⌈fraction · n⌉ numbers of largest magnitude of each tensor of n; the others arrive as zero.

    Positions are sent as four bytes each or as one bit for each of the n, whichever is shorter. With error feedback, a
    client keeps the residual e and sends the largest of δ + e the next time (Stich et al. 2018, Alg. 1; tensor by
    tensor as in Deep Gradient Compression, Lin et al. 2018). It is for changes only: a model with one weight in a
    hundred is useless.

    >>> TopK(fraction=0.01).bytes(torch.Size([1000])), TopK(fraction=0.1).bytes(torch.Size([1000]))
    (80, 525)
    """

    for_changes = True

    fraction: float = Field(default=0.01, gt=0, le=1, description="share of each tensor's numbers that is sent")
    error_feedback: bool = Field(default=True, description="clients keep the residual and add it to the next upload")

    @property
    def remembers(self) -> bool:
        return self.error_feedback

    def kept(self, shape: torch.Size) -> int:
        """k, at least one; 7 % of 100 is 7, although 0.07 · 100 is slightly more in floating point."""
        return max(1, math.ceil(round(self.fraction * shape.numel(), 6)))

    def bytes(self, shape: torch.Size) -> int:
        kept = self.kept(shape)
        return FLOAT_BYTES * kept + min(INDEX_BYTES * kept, _bitmap_bytes(shape))

    def encode(self, tensor: Tensor, numbers: np.random.Generator) -> Encoded:
        """Values in the order of their positions, and the positions: int32 indices, or a bitmap in uint8."""
        flat, kept = tensor.flatten(), self.kept(tensor.shape)
        places = flat.abs().topk(kept, sorted=False).indices.sort().values
        values = flat[places]
        if INDEX_BYTES * kept <= _bitmap_bytes(tensor.shape):
            return {"values": values, "places": places.to(torch.int32)}
        marks = torch.zeros(8 * _bitmap_bytes(tensor.shape), dtype=torch.uint8, device=flat.device)
        marks[places] = 1
        return {"values": values, "bitmap": (marks.reshape(-1, 8) << _bits(flat)).sum(dim=1, dtype=torch.uint8)}

    def decode(self, encoded: Encoded, shape: torch.Size) -> Tensor:
        values = encoded["values"]
        if "bitmap" in encoded:
            marks = (encoded["bitmap"].unsqueeze(1) >> _bits(values)) & 1
            places = marks.flatten().nonzero().squeeze(1)
        else:
            places = encoded["places"].long()
        return values.new_zeros(shape.numel()).index_copy(0, places, values).reshape(shape)


def _bits(like: Tensor) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=like.device)


def _bitmap_bytes(shape: torch.Size) -> int:
    return -(-shape.numel() // 8)
