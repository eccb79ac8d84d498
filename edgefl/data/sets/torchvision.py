"""Data sets of torchvision, with its folders, checksums and downloads: MNIST and its relatives, and CIFAR."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.data.location import data_root, how_to_set_the_root
from edgefl.data.spec import DATA_SETS, DataSpec, Description, Samples
from edgefl.errors import UserError

Result = TypeVar("Result")

_FAILURES = (RuntimeError, OSError, ValueError, AssertionError, EOFError)
"""Exceptions of torchvision for damaged files, inaccessible folders and unreachable servers."""


class TorchvisionSet(DataSpec):
    """A data set of torchvision, downloaded to the data root if it is missing."""

    original: ClassVar[str]  # the class in torchvision.datasets
    folder: ClassVar[str]  # the folder inside the root that torchvision reads
    facts: ClassVar[tuple[Any, ...]]  # classes, shape, training and test images of each class, mean and deviation

    def declared(self) -> Description | None:
        return Description(*self.facts)

    def read(self, **options: Any) -> tuple[Samples, Samples]:
        """The samples; ``options`` are those of torchvision's class."""
        import torchvision.datasets

        make: Callable[..., Any] = getattr(torchvision.datasets, self.original)
        place = data_root(self.root)

        def read(download: bool) -> tuple[Samples, Samples]:
            train, test = (_pixels(make(place, train=train, download=download, **options)) for train in (True, False))
            return train, test

        try:
            return read(download=False)
        except _FAILURES as error:
            if "not found" not in str(error):
                raise UserError(
                    f"the files in '{place / self.folder}' cannot be read ({_first_line(error)}); remove them to have "
                    "them downloaded again"
                ) from None
        return downloaded(place, self.folder, lambda: read(download=True))


@DATA_SETS.register("mnist")
class Mnist(TorchvisionSet):
    """60,000 and 10,000 grey images of 28×28 pixels in ten classes of unequal size (LeCun, Cortes and Burges)."""

    original, folder = "MNIST", "MNIST"
    facts = (
        10,
        (1, 28, 28),
        (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
        (0.1307,),
        (0.3081,),
    )

    name: Literal["mnist"] = Field(default="mnist", description="handwritten digits, 28×28")


@DATA_SETS.register("fashion_mnist")
class FashionMnist(TorchvisionSet):
    """60,000 and 10,000 grey images of 28×28 pixels in ten equal classes (Xiao, Rasul and Vollgraf 2017)."""

    original, folder = "FashionMNIST", "FashionMNIST"
    facts = 10, (1, 28, 28), (6000,) * 10, (1000,) * 10, (0.2860,), (0.3530,)

    name: Literal["fashion_mnist"] = Field(default="fashion_mnist", description="articles of clothing, 28×28")


@DATA_SETS.register("cifar10")
class Cifar10(TorchvisionSet):
    """50,000 and 10,000 colour images of 32×32 pixels in ten equal classes (Krizhevsky 2009)."""

    original, folder = "CIFAR10", "cifar-10-batches-py"
    facts = 10, (3, 32, 32), (5000,) * 10, (1000,) * 10, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

    name: Literal["cifar10"] = Field(default="cifar10", description="colour photographs, 32×32, 10 classes")


@DATA_SETS.register("cifar100")
class Cifar100(TorchvisionSet):
    """50,000 and 10,000 colour images of 32×32 pixels in a hundred equal classes (Krizhevsky 2009)."""

    original, folder = "CIFAR100", "cifar-100-python"
    facts = 100, (3, 32, 32), (500,) * 100, (100,) * 100, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)

    name: Literal["cifar100"] = Field(default="cifar100", description="colour photographs, 32×32, 100 classes")


@DATA_SETS.register("emnist")
class Emnist(TorchvisionSet):
    """Grey images of 28×28 pixels in one of six splits (Cohen, Afshar, Tapson and van Schaik 2017)."""

    original, folder = "EMNIST", "EMNIST"

    name: Literal["emnist"] = Field(default="emnist", description="handwritten letters and digits, 28×28")
    variant: Literal["balanced", "byclass", "bymerge", "digits", "letters", "mnist"] = Field(
        default="balanced", description="EMNIST's split; balanced has 47 classes of equal size"
    )

    def declared(self) -> Description | None:
        equal = {"balanced": (47, 2400, 400), "digits": (10, 24000, 4000), "mnist": (10, 6000, 1000)}
        if self.variant not in equal:
            return None
        classes, train, test = equal[self.variant]
        return Description(classes, (1, 28, 28), (train,) * classes, (test,) * classes)

    def read(self, **options: Any) -> tuple[Samples, Samples]:
        """Upright images, and labels from 0: EMNIST's images are transposed, and its letters are numbered from 1."""
        least = 1 if self.variant == "letters" else 0
        train, test = (
            part._replace(inputs=part.inputs.transpose(0, 1, 3, 2), labels=part.labels - least)
            for part in super().read(split=self.variant)
        )
        return train, test


def downloaded(place: Path, folder: str, download: Callable[[], Result]) -> Result:
    """The result of ``download``, which fetches a data set into ``folder`` of the data root ``place``."""
    if not place.is_dir() and place.parts[-2:] != ("edgefl", "data"):  # the user's cache
        raise UserError(f"the folder '{place}' does not exist; create it, or {how_to_set_the_root()}")
    try:
        return download()
    except _FAILURES as error:
        raise UserError(
            f"found no data in '{place / folder}', and downloading it failed ({_first_line(error)}); "
            f"{how_to_set_the_root()}"
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(":") or type(error).__name__


def _pixels(dataset: Any) -> Samples:
    """A torchvision data set's arrays, grey ``[n, h, w]`` or colour ``[n, h, w, 3]``, in one layout."""
    images = _array(dataset.data)
    images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    return Samples(np.ascontiguousarray(images, dtype=np.uint8), _array(dataset.targets).astype(np.int64))


def _array(values: Any) -> NDArray[Any]:
    """Convert to an array: MNIST and similar sets hold tensors, CIFAR an array and a list."""
    return np.asarray(values.numpy() if hasattr(values, "numpy") else values)
