"""The number of parameters that a client stores for a method, during training and between its rounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor, nn

from edgefl.methods.parts.local_part import OWN
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.norm import BatchNorm, GroupNorm

NORMS = (GroupNorm, BatchNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm)


@dataclass(frozen=True, slots=True)
class StoredParameters:
    """Parameters that a client stores.

    Attributes:
        model: the model alone.
        stored: the local model, and every copy or vector of its trained part that the loss or the rule reads during
            training (FedAlign's Table 5 counts 1, 2 and 3 models for FedAvg, FedProx and MOON).
        stored_without_norm: the same without norm layers, as in that table.
        between_rounds: parameters that the client keeps after its round: its state, zero for stateless clients.
    """

    model: int
    stored: int
    stored_without_norm: int
    between_rounds: int


def stored_parameters(model: BlockModel, method: Method, alpha: int) -> StoredParameters:
    """The parameters that a client of ``method`` stores.

    Args:
        model: the model as the method trains it (see ``Objective.adapt``).
        method: the method, whose objective, rule and client state determine the parameters.
        alpha: number of the last blocks that are received, and so stored as frozen copies; M for the whole model.
    """
    blocks = list(model.blocks.values())
    every = [_numbers(block.parameters()) for block in blocks]
    trained = [_numbers(each for each in block.parameters() if each.requires_grad) for block in blocks]
    norms = [
        [each for module in block.modules() if isinstance(module, NORMS) for each in module.parameters()]
        for block in blocks
    ]
    vectors = method.objective.vectors | method.rule.vectors
    read = vectors | method.objective.frozen
    partial = "received" in read and "received" not in vectors

    def held(sizes: list[int], trained: list[int]) -> int:
        received = sum(trained[len(trained) - alpha :]) if partial else 0
        return sum(sizes) + sum(trained) * (len(read) - partial) + received

    kept = () if method.state is None else method.state.vectors
    own = sum(place.stop - place.start for place in model.layout.local_parameters)
    between = sum(own if name == OWN else sum(trained) for name in kept)
    without_norm = held(
        [whole - _numbers(each) for whole, each in zip(every, norms, strict=True)],
        [part - _numbers(t for t in each if t.requires_grad) for part, each in zip(trained, norms, strict=True)],
    )
    return StoredParameters(sum(every), held(every, trained), without_norm, between)


def _numbers(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)
