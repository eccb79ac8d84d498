"""The number of parameters that a client stores for a method, during training and between its rounds."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from edgefl.methods.local_part import OWN
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.norm import BatchNorm, GroupNorm

NORMS = (GroupNorm, BatchNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm)


@dataclass(frozen=True, slots=True)
class StoredParameters:
    """Parameters that a client stores.

    Attributes:
        model: the model alone.
        stored: the local model, and every copy or vector of its size that the loss or the rule reads during training
            (FedAlign's Table 5 counts 1, 2 and 3 models for FedAvg, FedProx and MOON).
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
    every = [sum(tensor.numel() for tensor in block.parameters()) for block in blocks]
    plain = [all_of - norms for all_of, norms in zip(every, map(_norm_parameters, blocks), strict=True)]
    vectors = method.objective.vectors | method.rule.vectors
    read = vectors | method.objective.frozen
    partial = "received" in read and "received" not in vectors

    def held(sizes: list[int]) -> int:
        received = sum(sizes[len(sizes) - alpha :]) if partial else 0
        return sum(sizes) * (1 + len(read) - partial) + received

    kept = () if method.state is None else method.state.vectors
    own = sum(place.stop - place.start for place in model.layout.local_parameters)
    between = sum(own if name == OWN else sum(every) for name in kept)
    return StoredParameters(sum(every), held(every), held(plain), between)


def _norm_parameters(block: nn.Module) -> int:
    return sum(
        tensor.numel() for module in block.modules() if isinstance(module, NORMS) for tensor in module.parameters()
    )
