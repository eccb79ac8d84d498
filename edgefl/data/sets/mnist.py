"""MNIST: handwritten digits."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgefl.data.spec import DATA_SETS, DataSpec, Description, Samples
from edgefl.data.torchvision_files import read_with_torchvision


@DATA_SETS.register("mnist")
class Mnist(DataSpec):
    """60,000 and 10,000 grey images of 28×28 pixels in ten classes of unequal size (LeCun, Cortes and Burges)."""

    name: Literal["mnist"] = Field(default="mnist", description="handwritten digits, 28×28")

    def declared(self) -> Description:
        """Known in full."""
        return Description(
            classes=10,
            shape=(1, 28, 28),
            train=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
            test=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
            mean=(0.1307,),
            std=(0.3081,),
        )

    def read(self) -> tuple[Samples, Samples]:
        """Read ``MNIST`` in the data root, downloaded if it is missing."""
        return read_with_torchvision("MNIST", "MNIST", self.root)
