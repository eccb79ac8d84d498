"""Training of parts of a model: from the whole model's vector to a part's and back, and an engine for each part."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from edgefl.methods.parts.submodels import SubModel, SubModels
from edgefl.models.block_model import BlockModel
from edgefl.models.layout import Layout
from edgefl.training.engine_spec import Engine
from edgefl.training.job import Evaluation
from edgefl.training.job_task import JobResult, JobTask


@dataclass(eq=False)
class PartsOfModel:
    """The parts of a model that the clients of a method train, by capacity level; built on first use."""

    submodels: SubModels
    whole: BlockModel
    _parts: dict[int, SubModel] = field(default_factory=dict)

    def of(self, level: int) -> SubModel:
        """The part of a level."""
        if level not in self._parts:
            self._parts[level] = self.submodels.part(self.whole, level)
        return self._parts[level]

    def places(self, level: int, round: int) -> Tensor:
        """The places in the whole model ``[size]`` of the part's numbers in a round (from 0)."""
        return self.of(level).places(round)

    def taken(self, vector: Tensor, level: int, round: int) -> Tensor:
        """The numbers of the whole model ``[size]`` that belong to the part in a round (from 0)."""
        return vector[self.places(level, round).to(vector.device)]

    def put_back(self, part: Tensor, vector: Tensor, level: int, round: int) -> Tensor:
        """A copy of the whole model ``[size]`` with other numbers in the part's places."""
        whole = vector.clone()
        whole[self.places(level, round).to(vector.device)] = part
        return whole


def last_blocks(layout: Layout, blocks: int) -> Tensor:
    """The places in the model ``[size]`` of the numbers of so many last blocks."""
    parameters, buffers = layout.before(len(layout.block_names) - blocks)
    count = layout.parameter_count
    return torch.cat([torch.arange(parameters, count), torch.arange(count + buffers, layout.size)])


def shares(trained: Iterable[Tensor], weights: Tensor, size: int) -> Tensor:
    """The sum of the weights of the clients that trained each number of a model ``[size]``; 1 where none did."""
    total = weights.new_zeros(size)
    for places, weight in zip(trained, weights, strict=True):
        total[places.to(total.device)] += weight
    total[total == 0] = 1
    return total


@dataclass(eq=False)
class EngineOfParts:
    """An engine that trains each job with the engine of its part of the model, and evaluates whole models."""

    whole: Engine
    engine_of: Callable[[int], Engine]  # makes the engine of a level's part; it is called once for each
    _engines: dict[int, Engine] = field(default_factory=dict)

    def train(self, tasks: Sequence[JobTask]) -> list[JobResult]:
        results: dict[int, JobResult] = {}
        for level in sorted({task.level for task in tasks}):
            places = [place for place, task in enumerate(tasks) if task.level == level]
            if level not in self._engines:
                self._engines[level] = self.engine_of(level)
            trained = self._engines[level].train([tasks[place] for place in places])
            results.update(zip(places, trained, strict=True))
        return [results[place] for place in range(len(tasks))]

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        return self.whole.evaluate(vector, mode)

    def close(self) -> None:
        """Release the engines of the parts; the whole model's engine belongs to its maker."""
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()
