"""Fashion-MNIST: articles of clothing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgefl.data.spec import DATA_SETS, DataSpec, Description, Samples
from edgefl.data.torchvision_files import read_with_torchvision


@DATA_SETS.register("fashion_mnist")
class FashionMnist(DataSpec):
    """60,000 and 10,000 grey images of 28×28 pixels in ten equal classes (Xiao, Rasul and Vollgraf 2017)."""

    name: Literal["fashion_mnist"] = Field(default="fashion_mnist", description="articles of clothing, 28×28")

    def declared(self) -> Description:
        """Known in full."""
        return Description(
            classes=10,
            shape=(1, 28, 28),
            train=(6000,) * 10,
            test=(1000,) * 10,
            mean=(0.2860,),
            std=(0.3530,),
        )

    def read(self) -> tuple[Samples, Samples]:
        """Read ``FashionMNIST`` in the data root, downloaded if it is missing."""
        return read_with_torchvision("FashionMNIST", "FashionMNIST", self.root)
