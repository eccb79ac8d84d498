"""Folders of images: classes by subfolder, and one message that names the file for everything that is wrong."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from edgefl.data.dataset import load
from edgefl.data.sets.image_folder import ImageFolder
from edgefl.data.spec import data_set
from edgefl.errors import UserError
from edgefl.experiment import resume, run
from edgefl.scenario import load_scenario
from edgefl.yaml_file import dump_yaml

from ...small_runs import SMALL, Stop, tree

RNG = np.random.default_rng(0)
CLASSES = ("cat", "dog", "Äpfel")


def write(folder, *, count=8, shape=(10, 8, 3), classes=CLASSES):
    """Lossless images, in the order in which they are read; another format for each class."""
    images = []
    for name, ending in zip(sorted(classes), ("png", "bmp", "tiff"), strict=False):
        (folder / name).mkdir(parents=True)
        for index in range(count):
            images.append(RNG.integers(0, 256, shape, np.uint8))
            Image.fromarray(images[-1]).save(folder / name / f"{index:03}.{ending}")
    return np.array(images)


def test_subfolders_are_classes_in_the_order_of_their_names(tmp_path):
    train, test = write(tmp_path / "train"), write(tmp_path / "test", count=2)
    (tmp_path / "train" / ".cache").write_text("hidden")
    (tmp_path / "train" / "cat" / ".DS_Store").write_text("hidden")
    spec = ImageFolder(train=str(tmp_path / "train"), test=str(tmp_path / "test"), clients=4)
    for part, images in zip(load(spec), (train, test), strict=True):
        assert (part.inputs.numpy() == images.transpose(0, 3, 1, 2)).all()
        assert part.labels.tolist() == np.repeat([0, 1, 2], len(images) // 3).tolist()
    assert spec.describe().train == (8, 8, 8)


def test_the_test_folder_may_lack_a_class_and_keeps_the_numbers_of_the_others(tmp_path):
    write(tmp_path / "train")
    write(tmp_path / "test", count=2, classes=("dog",))
    spec = ImageFolder(train=str(tmp_path / "train"), test=str(tmp_path / "test"))
    assert load(spec)[1].labels.tolist() == [1, 1]
    assert spec.describe().test == (0, 2, 0)


def test_grey_images_have_one_channel_and_colours_converts(tmp_path):
    images, _ = write(tmp_path / "train", shape=(10, 8)), write(tmp_path / "test", shape=(10, 8))
    folders = {"train": str(tmp_path / "train"), "test_data": str(tmp_path / "test")}
    grey, _ = load(ImageFolder(**folders))
    assert (grey.inputs[:, 0].numpy() == images).all()
    colour, _ = load(ImageFolder(**folders, colours=3))
    assert (colour.inputs.numpy() == images[:, None]).all()
    assert colour.shape == (3, 10, 8)
    Image.fromarray(np.full((10, 8, 3), 9, np.uint8)).save(tmp_path / "train" / "cat" / "000.png")
    assert (load(ImageFolder(**folders))[0].inputs[1].numpy() == images[1]).all()


def test_images_are_resized(tmp_path):
    flat = np.full((30, 20, 3), 77, np.uint8)
    for split in ("train", "test"):
        write(tmp_path / split)
    Image.fromarray(flat).save(tmp_path / "train" / "cat" / "000.png")
    train, _ = load(ImageFolder(train=str(tmp_path / "train"), test_data=str(tmp_path / "test"), size=(6, 4)))
    assert train.shape == (3, 6, 4)
    assert (train.inputs[0] == 77).all()


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_photos_are_turned_by_their_tag_in_every_source(tmp_path, form, orientation):
    (tmp_path / "train" / "a").mkdir(parents=True)
    exif, pixels = Image.Exif(), np.kron([[0, 50], [100, 150], [200, 250]], np.ones((8, 8))).astype(np.uint8)
    exif[0x0112] = orientation
    data = []
    for index in range(2):
        path = tmp_path / "train" / "a" / f"{index}.{form.lower()}"
        Image.fromarray(pixels).convert("RGB").save(path, form, exif=exif, quality=95)
        data.append({"image": path.read_bytes(), "label": 0})
    pq.write_table(pa.Table.from_pylist(data), tmp_path / "train.parquet")
    seen = np.rot90(pixels, {1: 0, 3: 2, 6: -1, 8: 1}[orientation])
    for spec in (
        ImageFolder(train=str(tmp_path / "train"), clients=1),
        data_set({"name": "parquet", "root": str(tmp_path), "clients": 1}),
        data_set({"name": "arrays", "train": str(tmp_path / "train.parquet"), "inputs": "image", "target": "label"}),
    ):
        assert spec.describe().shape == (3, *seen.shape)
        assert np.abs(load(spec)[0].inputs[0, 0].numpy().astype(int) - seen).max() < 9


def test_stated_classes_may_have_no_folder_of_their_own_in_the_training_data(tmp_path):
    write(tmp_path / "train", classes=("cat", "dog"))
    write(tmp_path / "test", count=1)
    folders = {"train": str(tmp_path / "train"), "test": str(tmp_path / "test")}
    assert "found 'Äpfel'" in refused(**folders)
    _, test = load(ImageFolder(**folders, classes=3))
    assert (test.labels.tolist(), test.classes) == ([0, 1, 2], 3)


def text(path):
    path.write_text("no image")


def cut(path):
    path.write_bytes(path.read_bytes()[:-150])


def small(path):
    Image.fromarray(np.zeros((5, 8, 3), np.uint8)).save(path)


def deep(path):
    Image.fromarray(np.zeros((10, 8), np.uint16)).save(path)


WRONG_FILES = {
    "text": (text, "this is no image that can be decoded"),
    "cut": (cut, "this image cannot be decoded ("),
    "small": (small, "expected an image of 10×8 pixels, as the first one has, found 5×8; set data.size"),
    "deep": (deep, "expected an image of 8 bits for each channel, found one of the mode I;16"),
}


def refused(**data):
    """The one message with which these data are refused."""
    with pytest.raises(UserError) as found:
        load(data_set({"name": "image_folder", "clients": 8, **data}))
    assert "\n" not in str(found.value)
    return str(found.value)


@pytest.mark.parametrize("kind", WRONG_FILES)
def test_a_wrong_file_is_named(tmp_path, kind):
    write(tmp_path / "train")
    spoil, message = WRONG_FILES[kind]
    spoil(tmp_path / "train" / "cat" / "003.png")
    line = refused(train=str(tmp_path / "train"))
    assert message in line
    assert str(tmp_path / "train" / "cat" / "003.png") in line


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda train: (train / "a.txt").write_text(""), "only subfolders here, one for each class, found a file"),
        (lambda train: (train / "empty").mkdir(), "expected images of this class, found none"),
        (
            lambda train: [each.rename(train.parent / each.name) for each in train.iterdir()],
            "a subfolder of images for",
        ),
        (lambda train: train.rename(train.parent / "other"), "expected a folder at"),
    ],
)
def test_a_wrong_folder_is_named(tmp_path, spoil, message):
    write(tmp_path / "train")
    spoil(tmp_path / "train")
    assert message in refused(train=str(tmp_path / "train"))


def test_wrong_test_data_are_named(tmp_path):
    write(tmp_path / "train")
    write(tmp_path / "test", classes=("cats",))
    line = refused(train=str(tmp_path / "train"), test=str(tmp_path / "test"))
    assert "expected a class that is in the training data, found 'cats'; did you mean 'cat'?" in line
    write(tmp_path / "small", shape=(6, 8, 3))
    line = refused(train=str(tmp_path / "train"), test=str(tmp_path / "small"))
    assert "expected test inputs of the shape [3, 10, 8], as in the training data, found [3, 6, 8]" in line


@pytest.mark.full
def test_a_run_goes_on_only_with_the_same_images(tmp_path):
    write(tmp_path / "train")
    data = {"name": "image_folder", "train": "train", "clients": 8}
    (tmp_path / "my.yaml").write_text(dump_yaml({**SMALL, "data": data, "model": {"name": "cnn", "width": 2}}))
    scenario = load_scenario(tmp_path / "my.yaml")
    assert scenario.data.train == str(tmp_path / "train")
    whole = run(scenario, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=tmp_path / "run", listeners=[Stop(2)])
    image = tmp_path / "train" / "cat" / "003.png"
    content = image.read_bytes()
    Image.fromarray(np.zeros((10, 8, 3), np.uint8)).save(image)
    with pytest.raises(UserError, match="has changed since the run began"):
        resume(tmp_path / "run")
    image.write_bytes(content)
    assert tree(resume(tmp_path / "run")) == tree(whole)
