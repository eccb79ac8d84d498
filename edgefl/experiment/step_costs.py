"""The measured step costs of a run directory: ``costs.json``, so that a log can be checked without measuring again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgefl.learning.cost.law import CostModel
from edgefl.learning.cost.measure import StepCost
from edgefl.learning.methods.recipe import Method
from edgefl.learning.models.block_model import BlockModel
from edgefl.simulation.invariants import CostEntry
from edgefl.simulation.invariants.record import OperatorCount


class StepCosts:
    """One method's step costs; measures what is asked for, and remembers what was asked.

    Args:
        model: measures steps on the scenario's model.
        method: whose steps.
    """

    def __init__(self, model: CostModel, method: Method) -> None:
        self.method = method
        self._model = model
        self.used: dict[tuple[int, int], StepCost] = {}

    def step(self, alpha: int, batch: int) -> StepCost:
        """The cost of a local step on ``batch`` images with the last ``alpha`` blocks freshly received."""
        key = (alpha, batch)
        if key not in self.used:
            self.used[key] = self._model.cost(self.method, alpha, batch)
        return self.used[key]

    def adapted_model(self) -> BlockModel:
        """The scenario's model with whatever the method's objective adds to it."""
        return self.method.objective.adapt(self._model.model)

    def entries(self) -> list[dict[str, Any]]:
        """What was asked for, as JSON data in a fixed order."""
        return [
            {
                "alpha": alpha,
                "batch": batch,
                "layer_macs": cost.layer_macs,
                "forward_macs": cost.forward_macs,
                "training_flops": cost.training_flops,
                "bytes_touched": cost.bytes_touched,
                "peak_memory_bytes": cost.peak_memory_bytes,
                "operators": [[each.name, each.flops, each.bytes, each.count] for each in cost.operators],
            }
            for (alpha, batch), cost in sorted(self.used.items())
        ]


def write_costs(costs: Mapping[str, StepCosts], path: Path) -> None:
    """Write every method's step costs by label."""
    data = {label: method.entries() for label, method in costs.items()}
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def read_costs(path: Path) -> dict[str, dict[tuple[int, int], CostEntry]]:
    """Every method's step costs by label, then by (alpha, batch).

    Raises:
        ValueError, KeyError, TypeError: the file is damaged.
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
        for label, entries in json.loads(path.read_text(encoding="utf-8")).items()
    }
