"""Whether a model can be trained with a batch of one sample: PyTorch's batch norm needs two numbers per channel."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from edgefl.models.block_model import BlockModel
from edgefl.models.mode import using
from edgefl.models.random_layers import RandomFunctions

_REFUSAL = "Expected more than 1 value per channel"


def is_refusal(error: Exception) -> bool:
    """Whether batch norm raised an error because it got one number per channel."""
    return _REFUSAL in str(error)


def has_library_norms(model: nn.Module) -> bool:
    """Whether a model has normalisation layers of PyTorch; those of edgefl take any batch."""
    return any(isinstance(layer, _NormBase) for layer in model.modules())


def takes_one_sample(model: BlockModel) -> bool:
    """Whether a local step can have a batch of one sample; the model is called once to find out."""
    if not has_library_norms(model):
        return True
    layout = model.layout
    weights = layout.weights(torch.zeros(layout.parameter_count), torch.zeros(layout.buffer_count))
    try:
        with torch.no_grad(), using(training=True, track=False), RandomFunctions(torch.tensor(0)):
            model.apply_blocks(weights, model.inputs(1))
    except ValueError as error:
        if not is_refusal(error):
            raise
        return False
    return True
