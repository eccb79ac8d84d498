"""Each client's images have their own brightness and contrast."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from edgefl.data.feature_skews.base import FeatureSkew, Numbers, as_bytes, per_sample
from edgefl.data.samples import Kind

if TYPE_CHECKING:
    from torch import Tensor

GREY = 127.5


class Brightness(FeatureSkew):
    """Pixels in [0, 1] become (x − ½)·(1 + c) + ½ + b, with b and c of the client, uniform up to the maximum."""

    inputs: ClassVar[tuple[Kind, ...]] = ("images",)

    kind: Literal["brightness"] = Field(
        default="brightness", description="each client's images have its brightness and contrast"
    )
    brightness: float = Field(
        default=0.3, ge=0, le=1, description="largest number added to pixels in [0, 1], or subtracted"
    )
    contrast: float = Field(default=0.3, ge=0, le=1, description="largest relative change of the distance from grey")

    def draw(self, clients: int, rng: np.random.Generator) -> Numbers:
        """The brightness and the change of contrast of each client."""
        return rng.uniform(-1, 1, (clients, 2)) * (self.brightness, self.contrast)

    def apply(self, inputs: Tensor, parameters: Tensor, rng: np.random.Generator) -> Tensor:
        """The images with another brightness and contrast, rounded to bytes."""
        added = per_sample(255 * parameters[:, 0], inputs)
        factor = per_sample(1 + parameters[:, 1], inputs)
        return as_bytes((inputs - GREY) * factor + GREY + added)
