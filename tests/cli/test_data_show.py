"""``edgefl data show``: tables, JSON and a picture of who holds what."""

import json

import numpy as np
import pytest
from PIL import Image

from edgefl.cli import main

from ..small_runs import SMALL


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text(json.dumps(SMALL))
    return str(path)


def shown(capsys, *words):
    assert main(["data", "show", *words]) == 0
    return capsys.readouterr().out


def test_the_table_says_how_sizes_and_classes_differ(scenario, capsys):
    clients, train = SMALL["data"]["clients"], SMALL["data"]["train"]
    out = shown(capsys, scenario, "--set", "data.partition={kind: shards, s: 2}")
    size = train // clients
    assert f"training samples of a client  {size:>8}" in out
    assert "classes of a client" in out
    assert f"{train:,} training samples, {clients} clients; 0 are not used." in out
    assert out.count("█") >= clients  # in the row of each client


def test_json_has_every_client(scenario, capsys):
    change = "data.partition={kind: dirichlet, alpha: 0.3, balanced: false, min_size: 1}"
    found = json.loads(
        shown(capsys, scenario, "--json", "--seed", "3", "--set", change, "--set", "data.test=partitioned")
    )
    assert (found["targets"], found["seed"], found["clients"]) == ("classes", 3, SMALL["data"]["clients"])
    sizes = [each["samples"] for each in found["each"]]
    assert [sum(each["counts"]) for each in found["each"]] == sizes
    assert found["summary"]["samples"]["largest"] == max(sizes)
    assert found["summary"]["samples"]["median"] == np.median(sizes)
    assert {"client", "samples", "test_samples", "counts", "distance"} == set(found["each"][0])
    assert sum(sizes) + found["unused"] == SMALL["data"]["train"]


def test_classes_of_folders_have_their_names(tmp_path, capsys):
    for name in ("cat", "dog"):
        (tmp_path / "train" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("L", (8, 8), number).save(tmp_path / "train" / name / f"{number}.png")
    data = {"name": "image_folder", "train": "train", "size": [8, 8], "clients": 2, "test_share": 0.25}
    (tmp_path / "my.yaml").write_text(
        json.dumps({**SMALL, "data": data, "training": {**SMALL["training"], "cohort": 2}})
    )
    assert "Classes, as counts below are in order: cat, dog." in shown(capsys, str(tmp_path / "my.yaml"))


def test_a_picture_is_written(scenario, tmp_path, capsys):
    assert f"Picture  {tmp_path / 'who.png'}" in shown(capsys, scenario, "-o", str(tmp_path / "who.png"))
    assert Image.open(tmp_path / "who.png").width > 1000
