"""The losses of one model on the training images of single clients, which a selector may ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from edgefl.models.block_model import BlockModel
from edgefl.torch_settings import neutral_torch
from edgefl.training.base import JobData
from edgefl.training.evaluation import evaluate_batches, total


def local_losses(
    vector: Tensor,
    model: BlockModel,
    mode: Mapping[str, Any],
    data: JobData,
    *,
    clients: Sequence[int],
    images: int | None,
    draws: Callable[[int], np.random.Generator],
) -> list[float]:
    """The mean loss on each client's training images, without augmentation.

    Args:
        vector: the model's weights ``[size]``.
        model: the skeleton.
        mode: the method's differences from the mode of an evaluation.
        data: the clients' data.
        clients: the clients.
        images: how many images of each client are drawn; ``None``: all are used.
        draws: the generator for a client's images.
    """
    losses = []
    with neutral_torch():
        for client in clients:
            chosen, held = None, data.samples(client)
            if images is not None and images < held:
                chosen = np.sort(draws(client).choice(held, size=images, replace=False))
            own = data.own(client, chosen)
            losses.append(total(evaluate_batches(vector, own.evaluation(), model, own, mode), model.task).loss)
    return losses
