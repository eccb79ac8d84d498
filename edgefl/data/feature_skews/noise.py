"""Each client's inputs have Gaussian noise of its own strength."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from edgefl.data.feature_skews.base import FeatureSkew, Numbers, as_bytes, per_sample
from edgefl.data.samples import Kind

if TYPE_CHECKING:
    from torch import Tensor


class Noise(FeatureSkew):
    """Gaussian noise, drawn once for each sample; its standard deviation depends on the client.

    ``graded`` is the noise-based feature imbalance of Li et al., "Federated Learning on Non-IID Data Silos: An
    Experimental Study" (ICDE 2022), Section IV-B: party i of N has the noise Gau(σ·i/N), i from 1. The level is the
    standard deviation here, as in the authors' code. Noisy pixels are rounded to bytes and limited to the range of
    pixels, which theirs are not.
    """

    inputs: ClassVar[tuple[Kind, ...]] = ("images", "numbers")

    kind: Literal["noise"] = Field(default="noise", description="each client's inputs have noise of its strength")
    std: float = Field(
        gt=0, description="largest standard deviation, of pixels in [0, 1] or in the unit of the numbers"
    )
    levels: Literal["graded", "drawn"] = Field(
        default="graded",
        description="graded: client i of N, from 1, has i/N of the largest; drawn: a uniform share of it",
    )

    def draw(self, clients: int, rng: np.random.Generator) -> Numbers:
        """The standard deviation of each client."""
        shares = rng.random(clients) if self.levels == "drawn" else np.arange(1, clients + 1) / clients
        return self.std * shares[:, None]

    def apply(self, inputs: Tensor, parameters: Tensor, rng: np.random.Generator) -> Tensor:
        """The inputs with noise."""
        import torch

        noise = torch.from_numpy(rng.standard_normal(tuple(inputs.shape), dtype=np.float32))
        noise *= per_sample(parameters[:, 0], inputs)
        return inputs + noise if inputs.is_floating_point() else as_bytes(noise.mul_(255).add_(inputs))
