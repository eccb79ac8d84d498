"""The cost of a local step for any batch size, from few measurements.

The computation, reads and memory of an operator grow by the same amount with each further image. Two measurements
determine the linear law of every operator; a third one checks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from edgefl.cost.measure import ALIKE, StepCost, Trace, mean_cost, private_step, step_cost, trace
from edgefl.cost.recorder import Record
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.operator_kinds import Backend
from edgefl.torch_settings import neutral_torch

BATCHES = (2, 3, 5)
"""Measured batch sizes: two for the law, one to check it; not 1, which layers treat as a special case."""


@dataclass(frozen=True)
class AffineCost:
    """The costs of one local step as value + slope · batch, see :attr:`Trace.numbers`."""

    executed: tuple[Record, ...]
    value: NDArray[np.int64]
    slope: NDArray[np.int64]

    @staticmethod
    def through(first: Trace, second: Trace, check: Trace) -> AffineCost | None:
        """The law through two traces; ``None`` if a third trace contradicts it or the operators differ."""
        if not first.executed == second.executed == check.executed:
            return None
        step = second.batch - first.batch
        slope, remainder = np.divmod(second.numbers - first.numbers, step)
        value = first.numbers - slope * first.batch
        fits = not remainder.any() and np.array_equal(value + slope * check.batch, check.numbers)
        return AffineCost(first.executed, value, slope) if fits else None

    def at(self, batch: int) -> StepCost:
        return step_cost(batch, self.executed, self.value + self.slope * batch)


class CostModel:
    """The costs of local steps on one model, measured once for each method and number of received blocks.

    ``model`` is the scenario's; a method's changes to it (``Objective.adapt``) are applied here.
    """

    def __init__(self, model: BlockModel) -> None:
        self.model = model
        self._laws: dict[tuple[object, ...], AffineCost | None] = {}
        self._differ: dict[tuple[object, ...], bool] = {}

    @neutral_torch()
    def backend(self, method: Method, alpha: int, backend: Backend) -> Backend:
        """The backend itself, or ``cpu`` if both execute the same operators."""
        key = (*_signature(method), alpha)
        if key not in self._differ:
            model = method.objective.adapt(self.model)
            drawn = (method.objective.variants(model) or ALIKE)[0].draws
            self._differ[key] = trace(model, method, alpha, BATCHES[0], drawn).differs
        return backend if self._differ[key] else "cpu"

    @neutral_torch()
    def cost(self, method: Method, alpha: int, batch: int, backend: Backend = "cpu") -> StepCost:
        """The cost of a step of ``method`` on ``batch`` images with the last ``alpha`` blocks received (M: all).

        It comes from the affine law or, if the law does not hold for the method (a loss over pairs of images), from a
        measurement.
        """
        model, costs = method.objective.adapt(self.model), list[tuple[float, StepCost]]()
        for number, (share, drawn) in enumerate(method.objective.variants(model) or ALIKE):
            traced, law = partial(trace, model, method, alpha, drawn=drawn, backend=backend), None
            if batch > 1 and method.local.accumulate == 1:
                key = (*_signature(method), alpha, backend, number)
                if key not in self._laws:
                    self._laws[key] = AffineCost.through(*(traced(each) for each in BATCHES))
                law = self._laws[key]
            costs.append((share, traced(batch).cost if law is None else law.at(batch)))
        return mean_cost(costs)

    @neutral_torch()
    def product_flops(self, method: Method, alpha: int, batch: int) -> float:
        """The FLOPs of a step's products alone, two for each multiply-accumulate, as PyTorch's counter has them."""
        model = method.objective.adapt(self.model)
        variants = method.objective.variants(model) or ALIKE
        macs = (share * trace(model, method, alpha, batch, drawn).numbers[0].sum() for share, drawn in variants)
        return 2 * float(sum(macs))


def _signature(method: Method) -> tuple[object, ...]:
    how_long = {"epochs", "steps", "lr", "lr_decay", "drop_last", "common_finish", "input"}
    how_long |= {"batch"} if method.local.accumulate == 1 else set()
    options = tuple((type(part), repr(part)) for part in (method.objective, method.rule))
    return (*options, private_step(method), method.local.model_dump_json(exclude=how_long))
