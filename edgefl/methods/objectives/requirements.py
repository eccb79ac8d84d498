"""What objectives need of a model and its task."""

from __future__ import annotations

from typing import Literal

from edgefl.errors import UserError
from edgefl.models.block_model import BlockModel

Need = Literal["classes", "features", "images", "blocks", "depths", "widths"]
"""Logits of classes; one vector of features for each sample; inputs ``[channels, height, width]``; several blocks;
several blocks before the classifier; layers that can be narrowed."""


def check_need(need: Need, method: str, model: BlockModel) -> None:
    """Check that a model and its task have what a method needs.

    Args:
        need: what it needs.
        method: its name, for messages.
        model: the model.

    Raises:
        UserError: they do not.
    """
    task = model.task
    reasons = {
        "classes": (
            not task.classes,
            f"compares predictions of classes, which task '{task.kind}' does not have; expected task: classification",
        ),
        "features": (
            len(task.output_shape(model.classes, model.sample_shape)) > 1,
            f"compares one vector of features for each sample, and task '{task.kind}' has one for each place",
        ),
        "images": (
            len(model.sample_shape) != 3,
            "changes images [channels, height, width], and this model takes inputs of the shape "
            f"{list(model.sample_shape)}",
        ),
        "blocks": (
            model.depth < 2,
            "combines blocks of two models, and this model is one block" + (f": {model.whole}" if model.whole else ""),
        ),
        "depths": (
            model.depth < 3,
            f"trains the first blocks of a model, and this model has {model.depth} blocks"
            + (f": {model.whole}" if model.whole else ", expected 3 or more"),
        ),
        "widths": (
            not model.slimmable,
            "runs a model's layers at a smaller width, and this model's layers cannot; use a model of edgefl "
            "(edgefl models)",
        ),
    }
    missing, reason = reasons[need]
    if missing:
        raise UserError(f"{method} {reason}")
