"""Folders of save_to_disk: columns and splits by name, and one message for everything that is wrong."""

import json
import sys

import numpy as np
import pytest

from edgefl.cli import main
from edgefl.data.spec import data_set
from edgefl.errors import UserError
from edgefl.yaml_file import dump_yaml

from ...small_runs import SMALL

COUNT = 40


def test_without_the_library_the_message_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"datasets is not installed: python -m pip install -e '\.\[datasets\]'"):
        data_set({"name": "huggingface", "path": str(tmp_path), "inputs": "x"}).describe()


class TestWithTheLibrary:
    """Needs the extra ``datasets``."""

    pytestmark = pytest.mark.extras

    @pytest.fixture(autouse=True)
    def library(self):
        """The library, which the default environment does not have."""
        return pytest.importorskip("datasets")

    @pytest.fixture
    def columns(self, library):
        """The columns of a data set, and its features."""
        from PIL import Image

        rng = np.random.default_rng(0)
        features = {
            "x": library.Sequence(library.Value("float32"), length=4),
            "matrix": library.Array2D((3, 2), "float64"),
            "tokens": library.Sequence(library.Value("int64")),
            "age": library.Value("int32"),
            "picture": library.Image(),
            "label": library.ClassLabel(names=["a", "b", "c"]),
            "who": library.Value("string"),
            "text": library.Value("string"),
            "ragged": library.Sequence(library.Value("int64")),
        }
        images = rng.integers(0, 256, (COUNT, 8, 9, 3), np.uint8)
        values = {
            "x": rng.standard_normal((COUNT, 4)).astype(np.float32),
            "matrix": rng.standard_normal((COUNT, 3, 2)),
            "tokens": rng.integers(0, 30, (COUNT, 5)),
            "age": rng.integers(0, 90, COUNT),
            "picture": images,
            "label": np.arange(COUNT) % 3,
            "who": np.array([f"w{index // 8}" for index in range(COUNT)]),
        }
        content = {name: [*each] for name, each in values.items()}
        content["picture"] = [Image.fromarray(image) for image in images]
        content |= {"text": ["hello"] * COUNT, "ragged": [[1] * (1 + index % 2) for index in range(COUNT)]}
        return values, library.Dataset.from_dict(content, features=library.Features(features))

    @pytest.fixture
    def saved(self, columns, library, tmp_path):
        """A function that saves splits, of which the training data are in another order, and names the columns."""
        values, data = columns
        order = np.random.default_rng(1).permutation(COUNT)
        library.DatasetDict({"train": data.select(order), "test": data.select(range(9))}).save_to_disk(
            tmp_path / "saved"
        )

        def spec(**options):
            return data_set(
                {"name": "huggingface", "path": str(tmp_path / "saved"), "inputs": "x", "clients": 4} | options
            )

        return spec, {name: each[order] for name, each in values.items()}

    @pytest.mark.filterwarnings("error:The given NumPy array")
    @pytest.mark.parametrize("name", ["x", "matrix", "tokens", "age", "picture"])
    def test_columns_of_numbers_lists_and_images_are_inputs(self, saved, name):
        from edgefl.data.dataset import load

        spec, values = saved
        train, test = load(spec(inputs=name, client="who"))
        expected = (
            values[name].transpose(0, 3, 1, 2) if name == "picture" else values[name].reshape(COUNT, *train.shape)
        )
        assert (train.inputs.numpy() == expected.astype(train.inputs.numpy().dtype)).all()
        assert train.labels.tolist() == values["label"].tolist()
        assert train.owner.tolist() == [int(who[1:]) for who in values["who"]]
        assert len(test) == 9
        assert spec(inputs=name).describe().shape == train.shape

    def test_splits_are_chosen_by_name_and_a_share_is_tested_otherwise(self, saved, columns, tmp_path):
        from edgefl.data.dataset import load

        spec, _ = saved
        assert [len(part) for part in load(spec(train="test", test="train"))] == [9, COUNT]
        assert [len(part) for part in load(spec(train="test", test_share=0.34))] == [6, 3]
        columns[1].save_to_disk(tmp_path / "single")
        assert [len(part) for part in load(spec(path=str(tmp_path / "single")))] == [32, 8]
        with pytest.raises(UserError, match=r"this data set has no splits, and data\.train or data\.test names one"):
            spec(path=str(tmp_path / "single"), train="training").describe()

    def test_images_are_resized_and_made_grey(self, saved):
        spec, _ = saved
        assert spec(inputs="picture", size=[4, 5], colours=1).describe().shape == (1, 4, 5)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"inputs": "y"}, "no column 'y' in this data set; expected one of: age, label, matrix"),
            ({"train": "trian"}, "no split 'trian' in this data set; did you mean 'train'?"),
            ({"inputs": "text"}, "expected numbers in 'text', found the type text"),
            ({"inputs": "ragged"}, "expected lists of one length in 'ragged', found lengths from 1 to 2"),
            ({"path": "none"}, "data.path: expected a folder at 'none'"),
            ({"path": "."}, "a folder written by save_to_disk, found one that cannot be read (FileNotFoundError"),
        ],
    )
    def test_what_is_wrong_is_one_message_and_nothing_is_written(self, saved, capsys, tmp_path, options, message):
        data = {"name": "huggingface", "path": "saved", "inputs": "x", "clients": 4, **options}
        scenario = {**SMALL, "data": data, "model": {"name": "mlp", "widths": [4]}}
        (tmp_path / "my.yaml").write_text(dump_yaml(scenario))
        before = sorted(tmp_path.rglob("*"))
        assert main(["simulate", str(tmp_path / "my.yaml"), "--out", str(tmp_path / "run")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line
        assert sorted(tmp_path.rglob("*")) == before

    def test_images_elsewhere_and_damaged_ones_are_refused(self, library, tmp_path):
        stored = {"bytes": library.Value("binary"), "path": library.Value("string")}
        features = library.Features({"picture": stored, "label": library.Value("int64")})
        for name, image, message in (
            ("paths", {"bytes": None, "path": "/etc/hostname"}, "row 0 of 'picture': expected an image inside"),
            ("damaged", {"bytes": b"no image", "path": None}, "row 0 of 'picture': this is no image that can"),
        ):
            content = {"picture": [image] * 3, "label": [0, 1, 2]}
            library.Dataset.from_dict(content, features=features).save_to_disk(tmp_path / name)
            with pytest.raises(UserError) as refused:
                data_set({"name": "huggingface", "path": str(tmp_path / name), "inputs": "picture"}).describe()
            assert message in str(refused.value)

    def test_a_scenario_trains_and_its_paths_start_at_its_folder(self, saved, capsys, tmp_path):
        data = {"name": "huggingface", "path": "saved", "inputs": "picture", "client": "who", "clients": 5}
        data["partition"] = {"kind": "natural"}
        (tmp_path / "my.yaml").write_text(dump_yaml({**SMALL, "data": data}))
        for out, more in (("run", []), ("timed", ["--no-train"])):
            assert main(["simulate", str(tmp_path / "my.yaml"), "--out", str(tmp_path / out), *more]) == 0
        summary = json.loads((tmp_path / "run" / "summary.json").read_text())
        assert summary["methods"]["fedavg"][0]["stop"]["reason"] == "rounds"
        assert set(summary["inputs"]) == {"scenario", "data"}
