"""The reference engine: one client after another."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from edgefl.methods.parts.local_step import Precision
from edgefl.models.block_model import BlockModel
from edgefl.training.base import ENGINES, EngineEntry, EngineInputs, JobData, JobResult, JobTask
from edgefl.training.evaluation import evaluate_batches, total
from edgefl.training.job import Evaluation
from edgefl.training.local_training import train_job


class SequentialEngine:
    """Trains jobs in the given order, in the calling thread."""

    def __init__(
        self, model: BlockModel, data: JobData, device: torch.device, precision: Precision = "float32"
    ) -> None:
        self._model = model
        self._device = device
        self._data = data
        self._precision = precision

    def train(self, tasks: Sequence[JobTask]) -> list[JobResult]:
        return [train_job(task, self._model, self._data, precision=self._precision) for task in tasks]

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        return total(evaluate_batches(vector, self._data.evaluation(), self._model, self._data, mode), self._model.task)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def build(given: EngineInputs) -> SequentialEngine:
    """The engine."""
    return SequentialEngine(given.model, given.data, given.device, given.precision)


ENGINES.register("sequential")(EngineEntry(build))
