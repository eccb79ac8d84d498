"""A codec applied to a model: tensor by tensor, parameters only."""

import numpy as np
import torch
from torch import Tensor

from edgefl.methods.codecs.base import Codec, carried, sent_bytes
from edgefl.methods.parts.payload import ModelSizes
from edgefl.models.layout import FLOAT_BYTES, Layout


def encoded_sizes(codec: Codec, layout: Layout) -> ModelSizes:
    """Bytes on the wire of each block under a codec.

    Parameters are encoded, and local tensors not sent. Buffers (running statistics and their counters) are sent as
    float32, because rounded ones break a model, as are tensors that would not get shorter.
    """
    sizes = [0] * len(layout.block_names)
    for entry in (each for each in layout.parameters if not layout.is_local(each)):
        plain = FLOAT_BYTES * entry.numel
        sizes[entry.block] += sent_bytes(codec, entry.shape) if _shortens(codec, entry.shape) else plain
    for entry in (each for each in layout.buffers if not layout.is_local(each)):
        sizes[entry.block] += FLOAT_BYTES * entry.numel
    return ModelSizes(tuple(sizes), exact=codec.exact)


def transmitted(codec: Codec, parameters: Tensor, layout: Layout, numbers: np.random.Generator) -> Tensor:
    """Flat parameters ``[parameter_count]`` as received, a new vector if changed; ``numbers`` gives the draws."""
    if codec.exact:
        return parameters
    arrived = parameters.clone()
    for entry in layout.parameters:
        if _shortens(codec, entry.shape) and not layout.is_local(entry):
            place = slice(entry.start, entry.start + entry.numel)
            # A view of the copy, so a codec may write to it.
            arrived[place] = entry.flat(carried(codec, entry.view(arrived[place]), numbers))
    return arrived


def _shortens(codec: Codec, shape: torch.Size) -> bool:
    return 0 < sent_bytes(codec, shape) < FLOAT_BYTES * shape.numel()
