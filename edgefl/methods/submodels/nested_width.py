"""FjORD's parts of a model: the first channels, with all narrower parts inside them."""

from __future__ import annotations

from edgefl.methods.submodels.base import SubModel
from edgefl.methods.submodels.width import Width
from edgefl.models.block_model import BlockModel


class NestedWidth(Width):
    """:class:`Width`, whose networks know the narrower levels within them, for losses that run several widths."""

    def part(self, whole: BlockModel, level: int) -> SubModel:
        """See :class:`~edgefl.methods.submodels.base.SubModels`."""
        widest, *others = (self.cut(whole, share) for share in self.levels[level:])
        widest.model.nested = tuple(each.within(widest) for each in others)
        return SubModel(widest.model, lambda _: widest.places())
