"""EMNIST: handwritten letters and digits."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from edgefl.data.spec import DATA_SETS, DataSpec, Description, Samples
from edgefl.data.torchvision_files import read_with_torchvision


@DATA_SETS.register("emnist")
class Emnist(DataSpec):
    """Grey images of 28×28 pixels in one of six splits (Cohen, Afshar, Tapson and van Schaik 2017)."""

    name: Literal["emnist"] = Field(default="emnist", description="handwritten letters and digits, 28×28")
    variant: Literal["balanced", "byclass", "bymerge", "digits", "letters", "mnist"] = Field(
        default="balanced", description="EMNIST's split; balanced has 47 classes of equal size"
    )

    def declared(self) -> Description | None:
        """Known for the splits with equal classes; ``None`` for the others."""
        equal = {"balanced": (47, 2400, 400), "digits": (10, 24000, 4000), "mnist": (10, 6000, 1000)}
        if self.variant not in equal:
            return None
        classes, train, test = equal[self.variant]
        return Description(classes=classes, shape=(1, 28, 28), train=(train,) * classes, test=(test,) * classes)

    def read(self) -> tuple[Samples, Samples]:
        """Read ``EMNIST`` in the data root, downloaded if it is missing; images are upright, labels start at 0."""
        train, test = read_with_torchvision("EMNIST", "EMNIST", self.root, split=self.variant)
        # EMNIST's files contain transposed images and number letters from 1.
        least = 1 if self.variant == "letters" else 0
        train, test = (
            Samples(np.ascontiguousarray(part.inputs.transpose(0, 1, 3, 2)), part.labels - least)
            for part in (train, test)
        )
        return train, test
