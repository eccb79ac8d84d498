"""What each block of a model has and computes."""

from __future__ import annotations

from typing import NamedTuple

import torch

from edgefl.cost.measure import NOWHERE, without_data
from edgefl.cost.recorder import DataDependentError, Recorder
from edgefl.errors import UserError
from edgefl.models.block_model import BlockModel
from edgefl.models.mode import using


class BlockFigures(NamedTuple):
    """One block, for one sample.

    Attributes:
        name: the block's name.
        output: shape of its output without the batch dimension.
        parameters: numbers that are trained and sent.
        buffers: numbers that are not trained, such as running statistics.
        bytes: of what is sent, as float32.
        macs: multiply-accumulates of the forward pass.
    """

    name: str
    output: tuple[int, ...]
    parameters: int
    buffers: int
    bytes: int
    macs: int


def block_figures(model: BlockModel) -> list[BlockFigures]:
    """The figures of each block, counted on tensors without data.

    Raises:
        UserError: what the model executes depends on the numbers in tensors.
    """
    try:
        with without_data():
            return _figures(model)
    except DataDependentError as error:
        raise UserError(DataDependentError(error.dependence, whose="the model").reason) from error


def _figures(model: BlockModel) -> list[BlockFigures]:
    layout = model.layout
    parameters, buffers = (torch.empty(size, device=NOWHERE) for size in (layout.parameter_count, layout.buffer_count))
    weights, found = layout.weights(parameters, buffers), []
    tap = model.inputs(1, NOWHERE)
    for index, name in enumerate(layout.block_names):
        with Recorder() as recorder, torch.no_grad(), using(training=False):
            tap = model.apply_blocks(weights, tap, start=index, stop=index + 1)
        trained, others = (
            sum(entry.numel for entry in entries if entry.block == index)
            for entries in (layout.parameters, layout.buffers)
        )
        macs = sum(record.macs for record in recorder.records)
        found.append(BlockFigures(name, tuple(tap.shape[1:]), trained, others, layout.block_bytes()[index], macs))
    return found
