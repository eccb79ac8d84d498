import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from edgefl.data.sets.parquet import Parquet
from edgefl.errors import UserError


def encoded(pixels):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="PNG")
    return stream.getvalue()


def write(file, images, labels, image="image", label="label", cell=encoded):
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    cells = pa.array([{"bytes": cell(pixels), "path": None} for pixels in images], type=kind)
    pq.write_table(pa.table({image: cells, label: pa.array(labels)}), file)


@pytest.fixture
def coloured():
    return np.random.default_rng(0).integers(0, 256, (7, 5, 4, 3), np.uint8)


def test_pixels_and_labels_come_back_in_the_order_of_the_files(tmp_path, coloured):
    write(tmp_path / "train-00000-of-00002.parquet", coloured[:3], [2, 0, 1])
    write(tmp_path / "train-00001-of-00002.parquet", coloured[3:5], [1, 1])
    write(tmp_path / "test-00000-of-00001.parquet", coloured[5:], [0, 3])
    spec = Parquet(root=str(tmp_path), classes=4)
    train, test = spec.samples()
    assert (train.inputs == coloured[:5].transpose(0, 3, 1, 2)).all()
    assert train.labels.tolist() == [2, 0, 1, 1, 1]
    assert test.labels.tolist() == [0, 3]
    description = spec.describe()
    assert (description.classes, description.shape) == (4, (3, 5, 4))
    assert (description.train, description.test) == ((1, 3, 1, 0), (1, 0, 0, 1))


def test_a_folder_within_the_root_other_columns_and_a_validation_split(tmp_path, coloured, monkeypatch):
    (tmp_path / "mine" / "data").mkdir(parents=True)
    for split, some in (("train", 7), ("validation", 7), ("exam", 2)):
        file = tmp_path / "mine" / "data" / f"{split}-00000-of-00001.parquet"
        write(file, coloured[:some], [0] * some, "img", "fine_label")
    monkeypatch.setenv("EDGEFL_DATA", str(tmp_path))
    columns = {"image": "img", "label": "fine_label"}
    spec = Parquet(folder="mine", columns=columns)
    assert len(spec.samples()[1].labels) == 7
    named = Parquet(folder="mine", columns=columns, splits={"train": "exam", "test": "train"})
    assert [len(part.labels) for part in named.samples()] == [2, 7]
    with pytest.raises(UserError, match=r"no column 'label' in this file; did you mean 'fine_label'?"):
        Parquet(folder="mine", columns={"image": "img"}).samples()


def test_grey_sets_have_one_channel_and_a_grey_image_among_coloured_ones_three(tmp_path, coloured):
    grey = coloured[..., 0]
    for split in ("train", "test"):
        write(tmp_path / f"{split}.parquet", grey, [0] * 7)
    assert (Parquet(root=str(tmp_path)).samples()[0].inputs == grey[:, None]).all()
    write(tmp_path / "train.parquet", [grey[0], *coloured[1:]], [0] * 7)
    images = Parquet(root=str(tmp_path)).samples()[0].inputs
    assert images.shape == (7, 3, 5, 4)
    assert (images[0] == grey[0]).all()


def test_missing_files_unreadable_images_and_strange_labels_are_the_users_errors(tmp_path, coloured):
    spec = Parquet(root=str(tmp_path))
    with pytest.raises(UserError, match=r"found no files train-\*.parquet in .*EDGEFL_DATA"):
        spec.samples()
    train, test = tmp_path / "train.parquet", tmp_path / "test.parquet"
    write(train, coloured, range(7))
    assert (sum(spec.describe().train), sum(spec.describe().test)) == (6, 1)
    write(test, coloured, range(7), cell=lambda _: b"no image")
    with pytest.raises(UserError, match=r"test: row 0 of 'image': this is no image that can be decoded"):
        spec.samples()
    write(test, coloured, range(7), cell=lambda _: None)
    with pytest.raises(UserError, match="found only a path"):
        spec.samples()
    write(test, coloured[:, :, :3], range(7))
    with pytest.raises(UserError, match=r"expected test inputs of the shape \[3, 5, 4\], .* found \[3, 5, 3\]$"):
        spec.samples()
    write(test, coloured, [*range(6), -1])
    with pytest.raises(UserError, match=r"expected classes from 0 .* found -1"):
        spec.samples()
    write(test, coloured, [0.5] * 7)
    with pytest.raises(UserError, match="whole numbers from 0, the classes in 'label'"):
        spec.samples()
    test.write_bytes(b"PAR1 not at all")
    with pytest.raises(UserError, match="not a readable Parquet file"):
        spec.samples()
