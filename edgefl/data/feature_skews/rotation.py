"""Each client's images are rotated by its own angle."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from edgefl.data.augment import AugmentDraws, augmented, turned
from edgefl.data.feature_skews.base import FeatureSkew, Numbers
from edgefl.data.samples import Kind

if TYPE_CHECKING:
    from torch import Tensor


class Rotation(FeatureSkew):
    """Rotation about the centre by an angle that is uniform between minus and plus ``degrees``, nearest pixel.

    Pixels from outside the image are black.
    """

    inputs: ClassVar[tuple[Kind, ...]] = ("images",)

    kind: Literal["rotation"] = Field(default="rotation", description="each client's images are rotated by its angle")
    degrees: float = Field(gt=0, le=180, description="largest angle in either direction")

    def draw(self, clients: int, rng: np.random.Generator) -> Numbers:
        """The angle of each client in degrees."""
        return rng.uniform(-self.degrees, self.degrees, (clients, 1))

    def apply(self, inputs: Tensor, parameters: Tensor, rng: np.random.Generator) -> Tensor:
        """The rotated images."""
        import torch

        still = torch.zeros(len(inputs), dtype=torch.int64)
        return augmented(inputs, AugmentDraws(still, still, still, *turned(parameters[:, 0].numpy())))
