"""The complete cost of a method for a client: work and memory of a step, stored parameters, and sent bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgefl.cost.formulas import uncounted
from edgefl.cost.law import CostModel
from edgefl.cost.measure import StepCost
from edgefl.errors import UserError
from edgefl.methods.codecs.by_tensor import encoded_sizes
from edgefl.methods.fedbr import FedBR
from edgefl.methods.fedmlb import FedMLB
from edgefl.methods.parts.local_part import OWN, keeping_local
from edgefl.methods.parts.payload import Part
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.fake import META
from edgefl.models.norm import BatchNorm, GroupNorm

STEADY_ROUND = 2
"""The first round without effects of the start of a run."""


@dataclass(frozen=True, slots=True)
class MethodCost:
    """The cost of one method for one client."""

    label: str
    alpha: int  # number of the last blocks that are received; M for the whole model
    # the part of the model that the client's capacity level trains; None for methods without levels
    share: float | None
    step: StepCost
    product_flops: float  # of the step's products of matrices and convolutions alone, biases left out
    stored: StoredParameters
    down: tuple[Part, ...]  # the parts of a round's downlink and uplink, for a client that skipped the previous round
    up: tuple[Part, ...]
    optimizer_bytes: int  # of the local optimizer's state, during a job
    base_bytes: int  # of frozen weights under adapters, as the device stores them; they are sent once or never
    # a step's compute relative to FedAvg's by FedBR's Eq. (3), for methods with hybrid paths
    paper_factor: float | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; counts of work are per batch."""
        return {
            "method": self.label,
            "alpha": self.alpha,
            **({} if self.share is None else {"share": self.share}),
            "batch": self.step.batch,
            "layer_macs": self.step.layer_macs,
            "forward_macs": self.step.forward_macs,
            "training_flops": self.step.training_flops,
            "bytes_touched": self.step.bytes_touched,
            "launches": self.step.launches,
            "uncounted": uncounted(self.step.operators),
            "product_flops": self.product_flops,
            "paper_factor": self.paper_factor,
            "peak_memory_bytes": self.step.peak_memory_bytes,
            "optimizer_bytes": self.optimizer_bytes,
            "base_bytes": self.base_bytes,
            "parameters": self.stored.model,
            "stored_parameters": self.stored.stored,
            "stored_parameters_without_norm": self.stored.stored_without_norm,
            "parameters_between_rounds": self.stored.between_rounds,
            "download_bytes": sum(part.bytes for part in self.down),
            "upload_bytes": sum(part.bytes for part in self.up),
            "download_parts": {part.name: part.bytes for part in self.down},
            "upload_parts": {part.name: part.bytes for part in self.up},
        }


def method_cost(costs: CostModel, method: Method, batch: int, alpha: int | None = None, level: int = 0) -> MethodCost:
    """The cost of ``method`` for a client that receives the last ``alpha`` blocks, by default all.

    ``level`` is the client's capacity level, if the method has levels.
    """
    model = method.objective.adapt(costs.model)
    method = keeping_local(method, model.layout)
    if method.submodels is not None:
        model = method.submodels.part(model, level).model
        costs = CostModel(model)
    blocks = model.depth
    if alpha is not None and not 1 <= alpha <= blocks:
        raise UserError(f"expected 1 to the {blocks} blocks of the model, found {alpha}", field="alpha")
    whole = alpha is None or alpha == blocks
    received = blocks if alpha is None else alpha
    if not whole and not method.payload.sends_blocks:
        message = f"method '{method.label}' always sends the whole model: expected {blocks}, found {alpha}"
        raise UserError(message, field="alpha")
    payload, codecs = method.payload, method.codecs
    sizes = encoded_sizes(codecs.down, model.layout)
    rounds = range(STEADY_ROUND, STEADY_ROUND + 1000)
    round = STEADY_ROUND if whole else next(index for index in rounds if payload.partial(index))
    downlink = payload.downlink(sizes, round, None if whole else received, round - 2)
    return MethodCost(
        label=method.label,
        alpha=received,
        share=None if method.submodels is None else method.submodels.levels[level],
        step=costs.cost(method, received, batch),
        product_flops=costs.product_flops(method, received, batch),
        stored=stored_parameters(model, method, received),
        down=downlink.parts,
        up=payload.uplink(encoded_sizes(codecs.up, model.layout)),
        optimizer_bytes=optimizer_bytes(model, method),
        base_bytes=model.base_bytes,
        paper_factor=paper_factor(method, received, blocks),
    )


def optimizer_bytes(model: BlockModel, method: Method) -> int:
    """Bytes of the local optimizer's state during a job that trains the whole model."""
    dtype = torch.bfloat16 if method.local.precision == "bfloat16" else torch.float32
    received = torch.empty(model.layout.parameter_count, device=META, dtype=dtype)
    vectors = dict.fromkeys(method.rule.vectors, received) | method.rule.first(received)
    return sum(each.nbytes for each in method.rule.begin(received, vectors, method.local, 1).values())


def paper_factor(method: Method, alpha: int, blocks: int) -> float | None:
    """A step's compute relative to FedAvg's in FedBR's own model, 1 + α(α+1)/(2M) (Liu et al. 2023, Eq. 3).

    FedMLB is α = M - 1; ``None`` for methods without hybrid paths. The formula assumes that all M blocks cost the same;
    the measured graph shows that they do not.
    """
    if not isinstance(method.objective, FedMLB | FedBR):
        return None
    paths = blocks - 1 if isinstance(method.objective, FedMLB) else min(alpha, blocks - 1)
    return 1 + paths * (paths + 1) / (2 * blocks)


NORMS = (GroupNorm, BatchNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm)


@dataclass(frozen=True, slots=True)
class StoredParameters:
    """Parameters that a client stores."""

    model: int  # the model alone
    # the local model, and every copy or vector of its trained part that the loss or the rule reads during training
    # (FedAlign's Table 5 counts 1, 2 and 3 models for FedAvg, FedProx and MOON)
    stored: int
    stored_without_norm: int  # the same without norm layers, as in that table
    between_rounds: int  # parameters that the client keeps after its round: its state, zero for stateless clients


def stored_parameters(model: BlockModel, method: Method, alpha: int) -> StoredParameters:
    """The parameters that a client of ``method`` stores.

    ``model`` is as the method trains it (see ``Objective.adapt``). The last ``alpha`` blocks are received, and so
    stored as frozen copies; M for the whole model.
    """
    # By id, since blocks may share tensors: its first block, True in norms.
    found: dict[int, tuple[Tensor, int, bool]] = {}
    for index, block in enumerate(model.blocks.values()):
        for module in block.modules():
            for each in module.parameters(recurse=False):
                found.setdefault(id(each), (each, index, isinstance(module, NORMS)))
    vectors = (method.objective.vectors | method.rule.vectors) - {"step"}
    read = vectors | method.objective.frozen
    partial = "received" in read and "received" not in vectors

    def held(*, norms: bool) -> int:
        every = [(each, index) for each, index, of_norm in found.values() if norms or not of_norm]
        trained = [(each.numel(), index) for each, index in every if each.requires_grad]
        received = sum(numbers for numbers, index in trained if index >= model.depth - alpha) if partial else 0
        copies = sum(numbers for numbers, _ in trained) * (len(read) - partial)
        return sum(each.numel() for each, _ in every) + copies + received

    kept = () if method.state is None else method.state.vectors
    own = sum(place.stop - place.start for place in model.layout.local_parameters)
    trained = sum(each.numel() for each, *_ in found.values() if each.requires_grad)
    between = sum({OWN: own, "step": 1}.get(name, trained) for name in kept)
    whole = sum(each.numel() for each, *_ in found.values())
    return StoredParameters(whole, held(norms=True), held(norms=False), between)
