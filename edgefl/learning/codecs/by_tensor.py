"""A codec applied to a model: tensor by tensor, parameters only."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from edgefl.learning.codecs.base import Codec, carried, sent_bytes
from edgefl.learning.models.layout import FLOAT_BYTES, Layout
from edgefl.learning.payload import ModelSizes


def encoded_sizes(codec: Codec, layout: Layout) -> ModelSizes:
    """Bytes on the wire of each block under a codec.

    Parameters are encoded. Buffers (running statistics and their counters) travel as float32, because a step counter or
    a variance that is off by a step breaks a model; so does a tensor that its encoding would not shorten.
    """
    sizes = [0] * len(layout.block_names)
    for entry in layout.parameters:
        plain = FLOAT_BYTES * entry.numel
        sizes[entry.block] += sent_bytes(codec, entry.shape) if _shortens(codec, entry.shape) else plain
    for entry in layout.buffers:
        sizes[entry.block] += FLOAT_BYTES * entry.numel
    return ModelSizes(tuple(sizes), exact=codec.exact)


def transmitted(codec: Codec, parameters: Tensor, layout: Layout, numbers: np.random.Generator) -> Tensor:
    """What arrives of flat parameters ``[parameter_count]``: encoded, and decoded again; a new vector if changed.

    Args:
        codec: how each tensor travels.
        parameters: what is sent; a model, or anything that lies like one.
        layout: where the tensors are.
        numbers: for random choices, drawn in the order of the tensors.
    """
    if codec.exact:
        return parameters
    arrived = parameters.clone()
    for entry in layout.parameters:
        if _shortens(codec, entry.shape):
            place = slice(entry.start, entry.start + entry.numel)
            # A view of the copy: what a codec writes into it, nobody else reads.
            arrived[place] = entry.flat(carried(codec, entry.view(arrived[place]), numbers))
    return arrived


def _shortens(codec: Codec, shape: torch.Size) -> bool:
    return 0 < sent_bytes(codec, shape) < FLOAT_BYTES * shape.numel()
