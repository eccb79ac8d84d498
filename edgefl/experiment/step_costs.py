"""The costs of the local steps of a run: measured on first use, or read from its ``costs.json``."""

from collections.abc import Iterable
from dataclasses import astuple, fields, replace

from edgefl.cost.formulas import note_uncounted
from edgefl.cost.law import CostModel
from edgefl.cost.measure import Operator, StepCost
from edgefl.cost.method_cost import paper_factor
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_part import keeping_local
from edgefl.methods.parts.submodels import SubModel
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.operator_kinds import Backend
from edgefl.record.costs import StepKey, StepRow
from edgefl.simulation.cost_specs import CostSpec, PaperCost


def recorded_cost(row: StepRow) -> StepCost:
    """Return the cost of a step in ``costs.json``."""
    figures = {each.name: getattr(row, each.name) for each in fields(StepCost)}
    return StepCost(**{**figures, "operators": tuple(Operator(*operator) for operator in row.operators)})


def row_of(key: StepKey, cost: StepCost) -> StepRow:
    """Return the row of a step for ``costs.json``."""
    operators = tuple(astuple(each) if each.pixels else astuple(each)[:5] for each in cost.operators)
    figures = {each.name: getattr(cost, each.name) for each in fields(StepCost)}
    parts = dict(zip(("alpha", "batch", "level", "backend"), key, strict=True))
    return StepRow(**{**figures, **parts, "operators": operators})


def scaled_step(step: StepCost, factor: float) -> StepCost:
    """Return a step with ``factor`` times the FLOPs and bytes in the same number of operators."""
    operators = tuple(replace(each, flops=each.flops * factor, bytes=each.bytes * factor) for each in step.operators)
    return replace(step, operators=operators, training_flops=step.training_flops * factor)


class StepCosts:
    """A method's step costs, measured when used and not ``known``; with :class:`PaperCost` by FedBR's Eq. 3."""

    def __init__(self, model: CostModel, method: Method, cost: CostSpec, known: Iterable[StepRow] = ()) -> None:
        self.method = keeping_local(method, model.model.layout)
        self._plain = build_method("fedavg", method.local)
        self._paper = isinstance(cost, PaperCost)
        self._model = model
        self._levels: dict[int, tuple[SubModel, CostModel]] = {}
        self._known: dict[StepKey, StepCost] = {row.key: recorded_cost(row) for row in known}
        self.used: dict[StepKey, StepCost] = {}

    @property
    def model(self) -> BlockModel:
        return self._model.model

    def step(self, alpha: int, batch: int, level: int = 0, backend: Backend = "cpu") -> StepCost:
        """Return the cost of a local step on ``batch`` images with the last ``alpha`` blocks newly received.

        With ``alpha`` 0 it is FedAvg's step, whose forward pass is that of an evaluation. ``level`` is the client's
        capacity level; see :class:`~edgefl.methods.parts.submodels.SubModels`. ``backend`` is that of its device.
        """
        model = self._model if self.method.submodels is None else self.part_of(level)[1]
        method, blocks = (self.method, alpha) if alpha else (self._plain, model.model.depth)
        if backend != "cpu":
            backend = model.backend(method, blocks, backend)
        key = (alpha, batch, level, backend)
        if key not in self.used:
            if (cost := self._known.get(key)) is None:
                paper = self._paper and alpha > 0
                cost = model.cost(
                    self._plain if paper else method, model.model.depth if paper else blocks, batch, backend
                )
                if paper:
                    cost = scaled_step(cost, paper_factor(self.method, alpha, self._model.model.depth) or 1.0)
            self.used[key] = cost
            note_uncounted(cost.operators)
        return self.used[key]

    def part_of(self, level: int) -> tuple[SubModel, CostModel]:
        """Return the part of the model that clients of a capacity level train, for methods that have levels."""
        assert self.method.submodels is not None
        if level not in self._levels:
            part = self.method.submodels.part(self.adapted_model(), level)
            self._levels[level] = part, CostModel(part.model)
        return self._levels[level]

    def adapted_model(self) -> BlockModel:
        """Return the scenario's model with the additions of the method's objective."""
        return self.method.objective.adapt(self._model.model)

    def rows(self) -> list[StepRow]:
        """Return the used costs in a fixed order."""
        return [row_of(key, cost) for key, cost in sorted(self.used.items())]
