"""Feature skews: transformations of each client's inputs, one module per kind."""

from typing import Annotated

from pydantic import Field

from edgefl.data.feature_skews.brightness import Brightness
from edgefl.data.feature_skews.noise import Noise
from edgefl.data.feature_skews.rotation import Rotation
from edgefl.data.feature_skews.shift import Shift

AnyFeatureSkew = Annotated[Rotation | Noise | Brightness | Shift, Field(discriminator="kind")]
"""The possible values of ``data.feature_skew``; ``kind`` selects one."""

__all__ = ["AnyFeatureSkew", "Brightness", "Noise", "Rotation", "Shift"]
