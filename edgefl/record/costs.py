"""``costs.json``: the local steps of a run directory that were measured, with which devices compute their seconds."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import RootModel

from edgefl.files import read_json, write_file
from edgefl.operator_kinds import Backend
from edgefl.options import Options
from edgefl.validation import validated

Number = int | float

OperatorRow = tuple[str, Number, Number, Number, str] | tuple[str, Number, Number, Number, str, int, int]
"""An operator of a step: name, FLOPs and bytes of one execution, mean number of executions, kind; of a convolution also
the groups of its backward pass, and the pixels of its output."""


StepKey = tuple[int, int, int, Backend]
"""What a step's cost depends on: blocks received (alpha), batch size, capacity level, and the device's backend."""


class StepRow(Options):
    """The cost of a local step on ``batch`` images with the last ``alpha`` blocks newly received.

    See :class:`~edgefl.cost.measure.StepCost`. ``level`` is the index in the method's list of levels, 0 for methods
    without levels; ``backend`` the device's, ``cpu`` if others execute the same operators.
    """

    alpha: int
    level: int = 0
    backend: Backend = "cpu"
    batch: int
    layer_macs: int
    forward_macs: int
    training_flops: Number
    bytes_touched: Number
    peak_memory_bytes: int
    operators: tuple[OperatorRow, ...]

    @property
    def key(self) -> StepKey:
        return self.alpha, self.batch, self.level, self.backend


class _Costs(RootModel[dict[str, tuple[StepRow, ...]]]):
    pass


def read_costs(path: Path) -> dict[str, tuple[StepRow, ...]]:
    """Return the steps of each method by label."""
    return validated(_Costs, read_json(path), file=str(path)).root


def write_costs(steps: Mapping[str, Iterable[StepRow]], path: Path) -> None:
    """Write the steps of each method by label; the same steps give the same bytes."""
    data = {
        label: [step.model_dump(mode="json", exclude_defaults=True) for step in each] for label, each in steps.items()
    }
    write_file(path, json.dumps(data, indent=1) + "\n")
