"""What objectives require of a model."""

from __future__ import annotations

from edgefl.errors import UserError
from edgefl.models.block_model import BlockModel


def check_slimmable(method: str, model: BlockModel) -> None:
    """Check that the model's layers can run at a smaller width.

    Raises:
        UserError: they cannot.
    """
    if not model.slimmable:
        raise UserError(
            f"{method} runs a model's layers at a smaller width, and this model's layers cannot; use a model of edgefl "
            "(edgefl models)"
        )


def check_several_blocks(method: str, model: BlockModel) -> None:
    """Check that the model has blocks that can be combined with those of another model.

    Raises:
        UserError: it is one block.
    """
    if model.depth < 2:
        reason = f": {model.whole}" if model.whole else ""
        raise UserError(f"{method} combines blocks of two models, and this model is one block{reason}")
