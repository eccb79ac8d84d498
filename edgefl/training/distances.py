"""Distances between models, which are reported, and read by schedulers."""

from collections.abc import Sequence
from math import isfinite

import torch
from torch import Tensor

from edgefl.models.layout import Layout

_BLOCK = 512
"""Length of the blocks whose squares are summed in their own precision."""


class Distances:
    """‖a - b‖² over the parameters of two models ``[size]`` on one device.

    Buffers are excluded: batch norm's counters and variances are not distances in weight space. So is the local part,
    which the server does not receive.
    """

    def __init__(self, layout: Layout, like: Tensor) -> None:
        self._count, self._local = layout.parameter_count, layout.local_parameters
        # Whole blocks: the padding after a difference stays zero and adds nothing to the sum of squares.
        self._blocks = like.new_zeros(-(-self._count // _BLOCK), _BLOCK)
        self._difference = self._blocks.view(-1)[: self._count]

    def squared(self, vector: Tensor, other: Tensor) -> float:
        if vector is other:
            return 0.0
        found = float(self._squared(vector, other))
        # A block's sum may overflow float32 although the distance does not (a model that is diverging).
        return found if isfinite(found) else float(self._difference.double().square().sum())

    def all_squared(self, vectors: Sequence[Tensor], other: Tensor) -> list[float]:
        """:meth:`squared` of each vector, read from the device at once."""
        if not vectors:
            return []
        found = torch.stack([self._squared(vector, other) for vector in vectors]).tolist()
        return [
            each if isfinite(each) else self.squared(vector, other) for vector, each in zip(vectors, found, strict=True)
        ]

    def _squared(self, vector: Tensor, other: Tensor) -> Tensor:
        """Leaves the difference in the buffer."""
        difference = torch.sub(vector[: self._count], other[: self._count], out=self._difference)
        for place in self._local:
            difference[place] = 0
        # Blocks are summed in their own precision, their sums in float64: as exact as the differences, in a third of
        # the time.
        norms: Tensor = torch.linalg.vector_norm(self._blocks, dim=1)
        return norms.double().square().sum()
