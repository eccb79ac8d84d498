"""The measured step costs of a run directory (``costs.json``), with which a log is checked without measuring again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgefl.cost.law import CostModel
from edgefl.cost.measure import Operator, StepCost
from edgefl.cost.method_cost import paper_factor
from edgefl.durable_file import write_durably
from edgefl.methods.build import build_method
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.simulation.cost_specs import CostSpec, PaperCost
from edgefl.simulation.invariants import CostEntry
from edgefl.simulation.invariants.record import OperatorCount


class StepCosts:
    """The step costs of one method: measures each cost on first use, and records which were used.

    Args:
        model: measures steps on the scenario's model.
        method: the method.
        cost: the scenario's cost section; :class:`PaperCost` counts steps by FedBR's Eq. 3, FedAvg's step times a
            factor for hybrid paths.
    """

    def __init__(self, model: CostModel, method: Method, cost: CostSpec) -> None:
        self.method = method
        self._paper = isinstance(cost, PaperCost)
        self._model = model
        self.used: dict[tuple[int, int], StepCost] = {}

    def step(self, alpha: int, batch: int) -> StepCost:
        """Return the cost of a local step on ``batch`` images with the last ``alpha`` blocks newly received."""
        key = (alpha, batch)
        if key not in self.used:
            self.used[key] = self._cost(alpha, batch)
        return self.used[key]

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

    def entries(self) -> list[dict[str, Any]]:
        """Return the used costs as JSON data in a fixed order."""
        return [
            {
                "alpha": alpha,
                "batch": batch,
                "layer_macs": cost.layer_macs,
                "forward_macs": cost.forward_macs,
                "training_flops": cost.training_flops,
                "bytes_touched": cost.bytes_touched,
                "peak_memory_bytes": cost.peak_memory_bytes,
                "operators": [[each.name, each.flops, each.bytes, each.count, each.kind] for each in cost.operators],
            }
            for (alpha, batch), cost in sorted(self.used.items())
        ]


class RecordedCosts(StepCosts):
    """Step costs recorded in a run directory; other costs are measured.

    Args:
        model: measures steps on the scenario's model.
        method: the method.
        cost: the scenario's cost section.
        known: the method's entries of ``costs.json``.
    """

    def __init__(self, model: CostModel, method: Method, cost: CostSpec, known: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(model, method, cost)
        self._known = {
            (entry["alpha"], entry["batch"]): StepCost(
                batch=entry["batch"],
                operators=tuple(Operator(*operator) for operator in entry["operators"]),
                layer_macs=entry["layer_macs"],
                forward_macs=entry["forward_macs"],
                training_flops=entry["training_flops"],
                bytes_touched=entry["bytes_touched"],
                peak_memory_bytes=entry["peak_memory_bytes"],
            )
            for entry in known
        }

    def is_recorded(self, alpha: int, batch: int) -> bool:
        """Whether the run directory contains the cost of this step."""
        return (alpha, batch) in self._known

    def _cost(self, alpha: int, batch: int) -> StepCost:
        return self._known.get((alpha, batch)) or super()._cost(alpha, batch)


def write_costs(costs: Mapping[str, StepCosts], path: Path) -> None:
    """Write every method's step costs by label."""
    data = {label: method.entries() for label, method in costs.items()}
    write_durably(path, json.dumps(data, indent=1) + "\n")


def cost_entries(known: Mapping[str, Any]) -> dict[str, dict[tuple[int, int], CostEntry]]:
    """Return every method's step costs by label, then by (alpha, batch), from the content of ``costs.json``.

    Raises:
        AttributeError, ValueError, KeyError, TypeError: the file is damaged.
    """
    return {
        label: {
            (int(entry["alpha"]), int(entry["batch"])): CostEntry(
                operators=tuple(OperatorCount(*numbers) for _, *numbers in entry["operators"]),
                training_flops=float(entry["training_flops"]),
                peak_memory_bytes=float(entry["peak_memory_bytes"]),
            )
            for entry in entries
        }
        for label, entries in known.items()
    }
