"""CIFAR-10: small colour photographs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgefl.data.spec import DATA_SETS, DataSpec, Description, Samples
from edgefl.data.torchvision_files import read_with_torchvision


@DATA_SETS.register("cifar10")
class Cifar10(DataSpec):
    """50,000 and 10,000 colour images of 32×32 pixels in ten equal classes (Krizhevsky 2009)."""

    name: Literal["cifar10"] = Field(default="cifar10", description="colour photographs, 32×32, 10 classes")

    def declared(self) -> Description:
        """Known in full."""
        return Description(
            classes=10,
            shape=(3, 32, 32),
            train=(5000,) * 10,
            test=(1000,) * 10,
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2470, 0.2435, 0.2616),
        )

    def read(self) -> tuple[Samples, Samples]:
        """Read ``cifar-10-batches-py`` in the data root, downloaded if it is missing."""
        return read_with_torchvision("CIFAR10", "cifar-10-batches-py", self.root)
