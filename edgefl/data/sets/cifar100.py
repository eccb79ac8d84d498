"""CIFAR-100: small colour photographs of a hundred classes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgefl.data.spec import DATA_SETS, DataSpec, Description, Samples
from edgefl.data.torchvision_files import read_with_torchvision


@DATA_SETS.register("cifar100")
class Cifar100(DataSpec):
    """50,000 and 10,000 colour images of 32×32 pixels in a hundred equal classes (Krizhevsky 2009)."""

    name: Literal["cifar100"] = Field(default="cifar100", description="colour photographs, 32×32, 100 classes")

    def declared(self) -> Description:
        """Known in full."""
        return Description(
            classes=100,
            shape=(3, 32, 32),
            train=(500,) * 100,
            test=(100,) * 100,
            mean=(0.5071, 0.4865, 0.4409),
            std=(0.2673, 0.2564, 0.2762),
        )

    def read(self) -> tuple[Samples, Samples]:
        """Read ``cifar-100-python`` in the data root, downloaded if it is missing."""
        return read_with_torchvision("CIFAR100", "cifar-100-python", self.root)
