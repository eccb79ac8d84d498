"""The costs of the local steps of a run: measured on first use, or read from its directory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from edgefl.cost.law import CostModel
from edgefl.cost.measure import Operator, StepCost
from edgefl.cost.method_cost import paper_factor
from edgefl.methods.build import build_method
from edgefl.methods.local_part import keeping_local
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.record.costs import StepRow
from edgefl.simulation.cost_specs import CostSpec, PaperCost


def recorded_cost(row: StepRow) -> StepCost:
    """Return the cost of a step in ``costs.json``."""
    return StepCost(
        batch=row.batch,
        operators=tuple(Operator(*operator) for operator in row.operators),
        layer_macs=row.layer_macs,
        forward_macs=row.forward_macs,
        training_flops=row.training_flops,
        bytes_touched=row.bytes_touched,
        peak_memory_bytes=row.peak_memory_bytes,
    )


def row_of(alpha: int, batch: int, cost: StepCost) -> StepRow:
    """Return the row of a step for ``costs.json``."""
    return StepRow(
        alpha=alpha,
        batch=batch,
        layer_macs=cost.layer_macs,
        forward_macs=cost.forward_macs,
        training_flops=cost.training_flops,
        bytes_touched=cost.bytes_touched,
        peak_memory_bytes=cost.peak_memory_bytes,
        operators=tuple((each.name, each.flops, each.bytes, each.count, each.kind) for each in cost.operators),
    )


class StepCosts:
    """The step costs of one method: measures each cost on first use, and records which were used.

    Args:
        model: measures steps on the scenario's model.
        method: the method.
        cost: the scenario's cost section; :class:`PaperCost` counts steps by FedBR's Eq. 3, FedAvg's step times a
            factor for hybrid paths.
    """

    def __init__(self, model: CostModel, method: Method, cost: CostSpec) -> None:
        self.method = keeping_local(method, model.model.layout)
        self._paper = isinstance(cost, PaperCost)
        self._model = model
        self.used: dict[tuple[int, int], StepCost] = {}

    @property
    def model(self) -> BlockModel:
        """The scenario's model."""
        return self._model.model

    def step(self, alpha: int, batch: int) -> StepCost:
        """Return the cost of a local step on ``batch`` images with the last ``alpha`` blocks newly received."""
        key = (alpha, batch)
        if key not in self.used:
            self.used[key] = self._cost(alpha, batch)
        return self.used[key]

    def has(self, alpha: int, batch: int) -> bool:
        """Whether the method can train such a step: the model has as many blocks, a batch as many images."""
        return 1 <= alpha <= self._model.model.depth and 1 <= batch <= self.method.local.batch

    def _cost(self, alpha: int, batch: int) -> StepCost:
        if not self._paper:
            return self._model.cost(self.method, alpha, batch)
        plain = self._model.cost(build_method("fedavg", self.method.local), self._model.model.depth, batch)
        factor = paper_factor(self.method, alpha, self._model.model.depth) or 1.0
        return replace(
            plain,
            operators=tuple(
                replace(each, flops=each.flops * factor, bytes=each.bytes * factor) for each in plain.operators
            ),
            training_flops=plain.training_flops * factor,
        )

    def adapted_model(self) -> BlockModel:
        """Return the scenario's model with the additions of the method's objective."""
        return self.method.objective.adapt(self._model.model)

    def rows(self) -> list[StepRow]:
        """Return the used costs in a fixed order."""
        return [row_of(alpha, batch, cost) for (alpha, batch), cost in sorted(self.used.items())]


class RecordedCosts(StepCosts):
    """Step costs recorded in a run directory; other costs are measured.

    Args:
        model: measures steps on the scenario's model.
        method: the method.
        cost: the scenario's cost section.
        known: the method's steps in ``costs.json``.
    """

    def __init__(self, model: CostModel, method: Method, cost: CostSpec, known: Iterable[StepRow]) -> None:
        super().__init__(model, method, cost)
        self._known = {(row.alpha, row.batch): recorded_cost(row) for row in known}

    def is_recorded(self, alpha: int, batch: int) -> bool:
        """Whether the run directory contains the cost of this step."""
        return (alpha, batch) in self._known

    def _cost(self, alpha: int, batch: int) -> StepCost:
        return self._known.get((alpha, batch)) or super()._cost(alpha, batch)
