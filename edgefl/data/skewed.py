"""The samples of a federation, transformed as the feature skew of each client says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from edgefl.data.dataset import Dataset
from edgefl.data.feature_skews.base import FeatureSkew
from edgefl.data.sharding import Shards
from edgefl.randomness import generator

CHUNK = 1024
"""Samples that are transformed at a time."""


def skewed(data: Dataset, shards: Shards, skew: FeatureSkew, seed: int, part: str) -> Dataset:
    """The samples, each transformed as those of its client; samples of no client are unchanged.

    Args:
        data: the samples in main memory; they are copied.
        shards: the samples of each client.
        skew: the transformation.
        seed: the run's seed, which decides the parameters of each client.
        part: ``train`` or ``test``; a client has the same parameters in both.
    """
    parameters = torch.from_numpy(skew.draw(shards.clients, generator(seed, "feature skew")))
    owners = np.repeat(np.arange(shards.clients), shards.sizes)
    rng = generator(seed, "feature skew", part)
    inputs = data.inputs.clone()
    for start in range(0, len(owners), CHUNK):
        places = torch.from_numpy(shards.indices[start : start + CHUNK])
        mine = parameters[torch.from_numpy(owners[start : start + CHUNK])]
        inputs[places] = skew.apply(data.inputs[places], mine, rng)
    return replace(data, inputs=inputs)
