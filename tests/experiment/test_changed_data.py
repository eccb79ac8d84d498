"""A run goes on with the data that it began with, or not at all."""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from edgefl.data import dataset
from edgefl.errors import UserError
from edgefl.experiment import resume, run
from edgefl.record.names import STATE

from ..small_runs import Stop, tree


def encoded(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def files(tmp_path):
    """Writes the data set anew, with one pixel of the last image changed by ``more``."""
    folder = tmp_path / "images"
    folder.mkdir()

    def write(more=0):
        pixels = np.random.default_rng(0).integers(0, 200, (160, 8, 8), dtype=np.uint8)
        pixels[-1, 0, 0] += more
        labels = np.arange(160) % 4
        for split, part in (("train", slice(0, 120)), ("test", slice(120, 160))):
            table = pa.table({"image": [encoded(each) for each in pixels[part]], "label": pa.array(labels[part])})
            pq.write_table(table, folder / f"{split}-0.parquet")
        dataset._read.cache_clear()  # as in another process
        dataset._content.cache_clear()
        return folder

    return write


def test_a_run_whose_data_changed_meanwhile_is_not_resumed(small, tmp_path, files):
    data = {"name": "parquet", "root": str(files()), "clients": 6}
    scenario = small(data=data, seeds=[0, 1])
    expected = tree(run(scenario, out=tmp_path / "expected"))
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=folder, listeners=[Stop(6)])
    left = tree(folder)

    files(more=1)
    with pytest.raises(UserError, match="has changed since the run began") as refused:
        resume(folder)
    assert refused.value.file == str(tmp_path / "images")
    assert tree(folder) == left

    files()
    assert tree(resume(folder)) == expected


def test_without_training_no_data_are_compared(small, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(small(seeds=[0, 1]), out=tmp_path / "run", train=False, listeners=[Stop(6)])
    assert json.loads((tmp_path / "run" / STATE).read_text())["inputs"].keys() == {"scenario"}
    assert (resume(tmp_path / "run") / "summary.json").exists()
