"""What a run says of each client where the test set is partitioned."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from edgefl.errors import UserError
from edgefl.experiment import run

PERSONAL = {"data__test": "partitioned", "data__test_images": 80, "training__local__lr": 0.05}


def entry(folder, label="fedavg"):
    return json.loads((folder / "summary.json").read_text())["methods"][label][0]


def test_clients_count_by_their_images_to_the_runs_own_accuracy(small, tmp_path):
    folder = run(small(**PERSONAL), out=tmp_path / "run")
    found = entry(folder)
    assert found["clients"]["cumulative"] == pytest.approx(found["accuracy"]["final"])
    rows = pq.read_table(folder / "fedavg/seed-0/clients.parquet").to_pylist()
    assert [row["client"] for row in rows] == list(range(8))
    assert sum(row["accuracy"] for row in rows) / 8 == pytest.approx(found["clients"]["mean"])
    assert sum(row["tested"] for row in rows) == 80
    assert all(row["accuracy_personalised"] is None for row in rows)
    assert "personalisation" not in found


@pytest.mark.full
def test_calibration_fits_the_model_to_clients_of_two_classes(small, tmp_path):
    calibration = {"kind": "calibration", "epochs": 4, "lr": 0.1, "proximal": 0.01, "self_confidence": True}
    methods = ["fedavg", "fedadc"]
    folder = run(small(**PERSONAL, methods=methods, personalisation=calibration), out=tmp_path / "run")
    again = run(small(**PERSONAL, methods=methods, personalisation=calibration), out=tmp_path / "again")
    assert (folder / "summary.json").read_bytes() == (again / "summary.json").read_bytes()
    for label in methods:
        found = entry(folder, label)
        assert found["personalisation"]["kind"] == "calibration"
        assert found["personalisation"]["mean"] > found["clients"]["mean"]
        rows = pq.read_table(folder / label / "seed-0/clients.parquet").to_pylist()
        assert sum(row["accuracy_personalised"] * row["tested"] for row in rows) / 80 == pytest.approx(
            found["personalisation"]["cumulative"]
        )


def test_personalisation_needs_a_test_part_for_each_client(small):
    with pytest.raises(UserError, match=r"personalisation: .*data\.test must be 'partitioned'"):
        small(personalisation={"kind": "calibration"})
