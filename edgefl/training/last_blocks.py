"""The weights of clients that each train only the last blocks of the model."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from edgefl.models.layout import Layout


class LastBlocks:
    """Which numbers of the model clients train that train its last blocks.

    Args:
        layout: the model's layout.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def share_of(self, each: Sequence[tuple[int, int]], weights: Tensor) -> Tensor:
        """The sum of the weights of the clients that trained each number of the model ``[size]``; 1 where none did.

        Args:
            each: the number of trained blocks, and the round, of each client.
            weights: the weight of each client.
        """
        layout = self._layout
        total = weights.new_zeros(layout.size)
        for (blocks, _), weight in zip(each, weights, strict=True):
            parameters, buffers = layout.before(len(layout.block_names) - blocks)
            total[parameters : layout.parameter_count] += weight
            total[layout.parameter_count + buffers :] += weight
        total[total == 0] = 1
        return total
