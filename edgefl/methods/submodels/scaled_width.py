"""HeteroFL's parts of a model: the first channels, and activations divided by the share while training."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from torch import Tensor, nn

from edgefl.methods.submodels.width import Width
from edgefl.models.block_model import BlockModel
from edgefl.models.mode import mode
from edgefl.models.width.cutting import Cut


class Scaler:
    """A forward hook that divides a layer's output by the share p of channels while it trains.

    Args:
        share: p.
    """

    def __init__(self, share: float) -> None:
        self._share = share

    def __call__(self, layer: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        """The layer's output, divided."""
        return output / self._share if mode().training else output


class ScaledWidth(Width):
    """:class:`Width` with HeteroFL's scaler (Diao et al. 2021, Sec. 3): outputs of cut layers are divided by p.

    The scaler follows each convolution and linear layer of which channels are left out, before norm and activation, and
    acts in training only.
    """

    scaler: bool = Field(default=True, description="divide the outputs of narrower layers by p while training")

    def cut(self, whole: BlockModel, share: float) -> Cut:
        """See :class:`Width`."""
        cut = super().cut(whole, share)
        if self.scaler:
            for name in sorted(cut.outputs):
                cut.model.blocks.get_submodule(name).register_forward_hook(Scaler(share))
        return cut
