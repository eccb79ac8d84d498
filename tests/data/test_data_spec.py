"""Data sections and their content."""

import numpy as np
import pytest

from edgefl.data.dataset import content_of_samples
from edgefl.data.location import data_root
from edgefl.data.partitions import Iid
from edgefl.data.spec import Samples, data_set
from edgefl.errors import UserError
from edgefl.scenario.components import within


def data(**keys):
    try:
        return data_set(keys)
    except UserError as error:
        raise within(error, "data") from None


def test_a_section_needs_no_more_than_a_name():
    spec = data(name="digits")
    assert (spec.clients, spec.test, spec.partition, spec.validation) == (100, "whole", Iid(), 0.1)


def test_what_is_written_out_reads_back_as_the_same_specification():
    spec = data(
        name="synthetic", test=500, partition={"kind": "dirichlet", "alpha": 0.3}, normalise={"mean": [0], "std": [1]}
    )
    assert (spec.test, spec.test_images) == ("whole", 500)
    assert data(**spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"name": "digit"}, "data.name: unknown data set 'digit'; did you mean 'digits'?"),
        ({"name": "digits", "partition": {"kind": "iidd"}}, "data.partition.kind: .* did you mean 'iid'?"),
        (
            {"name": "digits", "partition": {"kind": "label_level", "level": 10}},
            "data.partition.level: expected 9 or less",
        ),
        ({"name": "digits", "clients": 12001}, "data: expected at most 12000 clients.*found 12001"),
        ({"name": "digits", "clients": 601, "test": "partitioned"}, "at most 600 clients.*found 601"),
        ({"name": "digits", "clients": 7, "partition": {"kind": "shards", "s": 3}}, "found 7 · 3 = 21"),
        ({"name": "digits", "normalise": {"mean": [0, 0], "std": [1, 1]}}, r"expects 1 number\(s\) .* found 2"),
        ({"name": "synthetic", "classes": 50, "train": 20, "clients": 5}, "found 50 classes, 20 training"),
        ({"name": "synthetic", "test": 60, "test_images": 40}, "expected test: 60 or test_images: 40, found both"),
        ({"name": "digits", "rot": "x"}, "data.rot: unknown key; did you mean 'root'?"),
    ],
)
def test_wrong_input_is_named_with_what_was_found_and_expected(keys, message):
    with pytest.raises(UserError, match=message):
        data(**keys)


def test_the_root_is_the_scenarios_else_the_environments_else_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("EDGEFL_DATA", str(tmp_path / "data"))
    assert data_root("/a").as_posix() == "/a"
    assert data_root() == tmp_path / "data"
    monkeypatch.setenv("EDGEFL_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_root() == tmp_path / "edgefl" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root() == tmp_path / ".cache" / "edgefl" / "data"


PIXELS = Samples(np.arange(96, dtype=np.uint8).reshape(2, 3, 4, 4), np.array([0, 1]))


@pytest.mark.parametrize(
    "other",
    [
        PIXELS._replace(inputs=PIXELS.inputs[::-1]),
        PIXELS._replace(inputs=PIXELS.inputs.reshape(2, 3, 2, 8)),
        PIXELS._replace(inputs=np.where(PIXELS.inputs == 95, 94, PIXELS.inputs)),
        PIXELS._replace(labels=np.array([1, 0])),
        PIXELS._replace(owner=np.array([0, 1])),
        PIXELS._replace(classes=3),
    ],
)
def test_whatever_differs_is_found(other):
    assert content_of_samples(other, PIXELS) != content_of_samples(PIXELS, PIXELS)
    assert content_of_samples(PIXELS, other) != content_of_samples(PIXELS, PIXELS)


def test_equal_sets_have_one_content_however_they_lie_in_memory():
    turned = PIXELS._replace(inputs=np.asfortranarray(PIXELS.inputs))
    assert content_of_samples(turned) == content_of_samples(PIXELS._replace(inputs=PIXELS.inputs.copy()))
