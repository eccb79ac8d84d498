"""Tiny-ImageNet: 64×64 photographs in two hundred classes."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from edgefl.data.location import data_root
from edgefl.data.pictures import Pictures
from edgefl.data.sets.parquet import Parquet, Splits, split_files
from edgefl.data.sets.torchvision import downloaded
from edgefl.data.spec import DATA_SETS, DataSpec, Description, Samples
from edgefl.errors import UserError

URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
MD5 = "90528d7ca1a48142e341f4ef8d21d0de"
"""Checksum of the archive, because it is downloaded by http."""
SIDE = 64


@DATA_SETS.register("tiny_imagenet")
class TinyImagenet(DataSpec):
    """500 training and 50 test images of each class, 64×64 in colour (Le and Yang 2015).

    The published validation images are the test set, as the test images have no labels. Reads ``tiny-imagenet-200``
    from the unpacked archive, or ``tiny-imagenet-200`` and ``tiny-imagenet-100`` (every second class) as Parquet files.
    """

    name: Literal["tiny_imagenet"] = Field(default="tiny_imagenet", description="colour photographs, 64×64")
    classes: Literal[100, 200] = Field(default=200, description="200, or 100 for a folder tiny-imagenet-100")

    def declared(self) -> Description:
        train, test = (500,) * self.classes, (50,) * self.classes
        mean, std = (0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)
        return Description(self.classes, (3, SIDE, SIDE), train, test, mean, std)

    def read(self) -> tuple[Samples, Samples]:
        """Read from the data root; the archive of all 200 classes is downloaded if it is missing."""
        root = data_root(self.root)
        folder = root / f"tiny-imagenet-{self.classes}"
        if split_files(folder, "train"):
            return Parquet(root=str(folder), colours=3, splits=Splits(test="validation")).read()
        if not (folder / "wnids.txt").is_file():
            downloaded(root, folder.name, lambda: _download(root, self.classes))
        return from_archive_folder(folder)


def _download(root: Path, classes: int) -> None:
    if classes != 200:
        raise RuntimeError(f"only the set of 200 classes can be downloaded, not that of {classes}")
    from torchvision.datasets.utils import download_url

    download_url(URL, str(root), md5=MD5)
    with zipfile.ZipFile(root / "tiny-imagenet-200.zip") as archive:
        archive.extractall(root)


def from_archive_folder(folder: Path) -> tuple[Samples, Samples]:
    """The images of the unpacked archive; classes are in alphabetical order of their WordNet ids."""
    from torchvision.datasets.folder import make_dataset

    try:
        names = sorted((folder / "wnids.txt").read_text().split())
        train = make_dataset(folder / "train", {name: label for label, name in enumerate(names)}, (".jpeg",))
        rows = [line.split("\t") for line in (folder / "val" / "val_annotations.txt").read_text().splitlines()]
        test = [(folder / "val" / "images" / row[0], names.index(row[1])) for row in rows]
    except (OSError, ValueError, IndexError) as error:
        raise UserError(f"the files in '{folder}' cannot be read ({error})") from None
    return _samples(train), _samples(test)


def _samples(files: Sequence[tuple[Path | str, int]]) -> Samples:
    paths, labels = zip(*files, strict=True)
    pictures: Any = Pictures.of_files(paths, colours=3)
    return Samples(pictures, np.array(labels, dtype=np.int64))
