"""A model split into consecutive blocks, called with weights that are handed in."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.func import functional_call

from edgefl.learning.models.layout import Layout, Weights


class BlockModel(nn.Module):
    """A skeleton of M consecutive blocks; it holds shapes, while weights come with every call.

    Args:
        blocks: the blocks by name, in order; the output of one is the input of the next, and the last one's output are
            the logits ``[batch, classes]``. The tap of a block is its output.
        sample_shape: shape of one input without the batch dimension, e.g. ``(1, 28, 28)``.
        classes: number of classes.

    The skeleton's own tensors are only a seeded starting point (see ``edgefl.learning.models.registry.build_model``).
    """

    def __init__(self, blocks: Mapping[str, nn.Module], *, sample_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleDict(blocks)
        self.sample_shape = sample_shape
        self.classes = classes
        self.layout = Layout(blocks)
        self._sequence = list(blocks.values())

    @property
    def depth(self) -> int:
        """M, the number of blocks."""
        return len(self._sequence)

    def apply_blocks(self, weights: Weights, inputs: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        """The output of blocks ``start … stop-1`` (0-based) on ``inputs``, under the current mode.

        With ``start=0`` the input is a batch ``[batch, *sample_shape]``, else the tap of block ``start-1``.
        """
        for index in range(start, self.depth if stop is None else stop):
            inputs = functional_call(self._sequence[index], weights[index], (inputs,))
        return inputs

    def taps(self, weights: Weights, inputs: Tensor) -> list[Tensor]:
        """The outputs of all M blocks; the last one are the logits."""
        outputs = []
        for index in range(self.depth):
            inputs = functional_call(self._sequence[index], weights[index], (inputs,))
            outputs.append(inputs)
        return outputs

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits under the skeleton's own weights; for use as a plain module."""
        for block in self._sequence:
            inputs = block(inputs)
        return inputs
