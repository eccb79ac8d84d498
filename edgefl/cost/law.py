"""The cost of a local step for any batch size, from few measurements.

The computation, reads and memory of an operator grow by the same amount with each further image. Two measurements
determine the linear law of every operator; a third one checks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from edgefl.cost.measure import Operator, StepCost, Trace, mean_cost, measure, trace
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.torch_settings import neutral_torch

BATCHES = (2, 3, 5)
"""Measured batch sizes: two for the law, one to check it; not 1, which layers treat as a special case."""

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class AffineCost:
    """The costs of one local step as value + slope · batch, operator by operator in the order of execution.

    Attributes:
        names: the operators.
        kinds: the kind of each operator; see :mod:`edgefl.cost.kinds`.
        forward: whether each belongs to the forward pass.
        layer: whether a convolution or linear layer called it.
        value, slope: rows of MACs, FLOPs, bytes and live bytes ``[4, operators]``.
        brought: value and slope of the bytes that existed before the step.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    forward: NDArray[np.bool_]
    layer: NDArray[np.bool_]
    value: Numbers
    slope: Numbers
    brought: tuple[int, int]

    @staticmethod
    def through(traces: tuple[Trace, ...]) -> AffineCost | None:
        """The law through two traces; ``None`` if a third trace contradicts it or the operators differ."""
        first, second, check = traces
        runs = [[(record.name, record.kind, record.phase, record.layer) for record in one.records] for one in traces]
        if runs[0] != runs[1] or runs[0] != runs[2]:
            return None
        low, high, beyond = (_numbers(one) for one in traces)
        step = second.batch - first.batch
        slope, remainder = np.divmod(high - low, step)
        value = low - slope * first.batch
        brought_slope = (second.brought_bytes - first.brought_bytes) // step
        brought_value = first.brought_bytes - brought_slope * first.batch
        fits = not remainder.any() and np.array_equal(value + slope * check.batch, beyond)
        if not fits or brought_value + brought_slope * check.batch != check.brought_bytes:
            return None
        return AffineCost(
            names=tuple(record.name for record in first.records),
            kinds=tuple(record.kind for record in first.records),
            forward=np.array([record.phase == "forward" for record in first.records]),
            layer=np.array([record.layer for record in first.records]),
            value=value,
            slope=slope,
            brought=(brought_value, brought_slope),
        )

    def at(self, batch: int) -> StepCost:
        """The cost for a batch of ``batch`` images."""
        macs, flops, touched, live = self.value + self.slope * batch
        counts = Counter(zip(self.names, flops.tolist(), touched.tolist(), self.kinds, strict=True))
        return StepCost(
            batch=batch,
            operators=tuple(
                Operator(name, flop, moved, count, kind) for (name, flop, moved, kind), count in counts.items()
            ),
            layer_macs=int(macs[self.forward & self.layer].sum()),
            forward_macs=int(macs[self.forward].sum()),
            training_flops=int(flops.sum()),
            bytes_touched=int(touched.sum()),
            peak_memory_bytes=self.brought[0] + self.brought[1] * batch + int(live.max(initial=0)),
        )


def _numbers(one: Trace) -> Numbers:
    rows = [(record.macs, record.flops, record.bytes, record.live) for record in one.records]
    return np.array(rows, dtype=np.int64).reshape(-1, 4).T


class CostModel:
    """The costs of local steps on one model, measured once for each method and number of received blocks.

    Args:
        model: the scenario's model; a method's changes to it (``Objective.adapt``) are applied here.
    """

    def __init__(self, model: BlockModel) -> None:
        self.model = model
        self._laws: dict[tuple[object, ...], AffineCost | None] = {}
        self._costs: dict[tuple[object, ...], StepCost] = {}

    @neutral_torch()
    def cost(self, method: Method, alpha: int, batch: int) -> StepCost:
        """The cost of a step of ``method`` on ``batch`` images with the last ``alpha`` blocks received (M: all).

        It comes from the affine law or, if the law does not hold for the method (a loss over pairs of images), from a
        measurement.
        """
        signature = (*_signature(method), alpha)
        key = (*signature, batch)
        if key not in self._costs:
            variants = method.objective.variants(self._adapted(method))
            costs = [self._of_variant(signature, method, alpha, batch, *each) for each in enumerate(variants)]
            self._costs[key] = mean_cost(costs or [self._of_variant(signature, method, alpha, batch)])
        return self._costs[key]

    def _of_variant(  # noqa: PLR0917  (a step is made of this many things)
        self,
        signature: tuple[object, ...],
        method: Method,
        alpha: int,
        batch: int,
        number: int = 0,
        drawn: Mapping[str, Tensor] | None = None,
    ) -> StepCost:
        """The cost of a step with these random inputs, which are the ``number``-th variant."""
        model, key = self._adapted(method), (*signature, number)
        if batch == 1:
            return measure(model, method, alpha, batch, drawn)
        if key not in self._laws:
            self._laws[key] = AffineCost.through(tuple(trace(model, method, alpha, each, drawn) for each in BATCHES))
        law = self._laws[key]
        return measure(model, method, alpha, batch, drawn) if law is None else law.at(batch)

    def _adapted(self, method: Method) -> BlockModel:
        return method.objective.adapt(self.model)


def _signature(method: Method) -> tuple[object, ...]:
    """Everything that a step's cost depends on, except model, alpha and batch."""
    how_long = {"epochs", "steps", "batch", "lr", "lr_decay", "drop_last", "common_finish"}
    parts = (method.objective, method.rule)
    options = tuple((type(part), repr(part)) for part in parts)
    return (*options, method.local.model_dump_json(exclude=how_long))
