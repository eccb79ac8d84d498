"""Each client's numbers have their own offset and scale, as those of sensors with different calibrations."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from edgefl.data.feature_skews.base import FeatureSkew, Numbers, per_sample
from edgefl.data.samples import Kind

if TYPE_CHECKING:
    from torch import Tensor


class Shift(FeatureSkew):
    """All numbers x of a client become x·(1 + s) + o, with o and s of the client, uniform up to the maximum."""

    inputs: ClassVar[tuple[Kind, ...]] = ("numbers",)

    kind: Literal["shift"] = Field(default="shift", description="each client's numbers have its offset and scale")
    offset: float = Field(default=1.0, ge=0, description="largest number that is added or subtracted")
    scale: float = Field(default=0.0, ge=0, le=1, description="largest relative change of the numbers")

    def draw(self, clients: int, rng: np.random.Generator) -> Numbers:
        """The offset and the relative change of each client."""
        return rng.uniform(-1, 1, (clients, 2)) * (self.offset, self.scale)

    def apply(self, inputs: Tensor, parameters: Tensor, rng: np.random.Generator) -> Tensor:
        """The numbers with another scale and offset."""
        return inputs * per_sample(1 + parameters[:, 1], inputs) + per_sample(parameters[:, 0], inputs)
