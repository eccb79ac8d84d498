"""Count the PyTorch operators that a ``ClientApp`` really executes."""

from __future__ import annotations

from collections import Counter

from torch import Tensor

from edgefl.cost.measure import Operator, StepCost
from edgefl.cost.recorder import Record, Recorder


class OperatorCount(Recorder):  # type: ignore[no-untyped-call]
    """Counts equal operators together: an app may execute millions.

    Operators count if the thread that enters the context executes them. Other threads and processes, such as the
    workers of a data loader, are not counted.
    """

    def __init__(self) -> None:
        super().__init__(with_data=True)
        self._counts: Counter[tuple[str, int, int, str]] = Counter()
        self._forward_macs = self._layer_macs = self._peak = 0

    def add(self, record: Record) -> None:
        """Add an operator to the counts."""
        self._counts[record.name, record.flops, record.bytes, record.kind] += 1
        self._forward_macs += record.macs
        self._layer_macs += record.macs if record.layer else 0
        self._peak = max(self._peak, record.live)

    def _bring(self, tensor: Tensor) -> int:
        # An app may bring a new batch in every step, so what it brings is live only as long as it exists.
        key: int = tensor.untyped_storage()._cdata
        if key not in self._made:
            self._make(tensor)
        return key

    def cost(self) -> StepCost:
        """The cost of everything that was executed.

        All products count as forward ones, because an app does not say where its backward pass begins.
        """
        return StepCost(
            batch=0,
            operators=tuple(
                Operator(name, flops, bytes, count, kind)
                for (name, flops, bytes, kind), count in sorted(self._counts.items())
            ),
            layer_macs=self._layer_macs,
            forward_macs=self._forward_macs,
            training_flops=float(sum(flops * count for (_, flops, _, _), count in self._counts.items())),
            bytes_touched=float(sum(bytes * count for (_, _, bytes, _), count in self._counts.items())),
            peak_memory_bytes=self._peak,
        )
