"""``edgefl profile measure`` writes a valid profile, and checks it on steps unlike those of the fit."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgefl.cli.profile import app
from edgefl.fleet import Estimate, read_profile
from edgefl.learning.cost import calibration
from edgefl.learning.cost.calibration import CALIBRATION, HELD_OUT, Case


def test_no_family_and_no_method_of_the_check_is_in_the_fit():
    assert not {case.model for case in HELD_OUT} & {case.model for case in CALIBRATION}
    assert not {case.method for case in HELD_OUT} & {case.method for case in CALIBRATION}
    assert len(HELD_OUT) >= 6


@pytest.fixture(name="few")
def few_fixture(monkeypatch):
    """Small cases, so that the test is quick."""
    small = tuple(Case("cnn", "fedavg", batch) for batch in (1, 2, 4, 8))
    monkeypatch.setattr(calibration, "CALIBRATION", small)
    monkeypatch.setattr(calibration, "HELD_OUT", (Case("fedadc_cnn", "moon", 2),))


def test_it_writes_a_profile_of_this_machine(few, tmp_path):
    file = tmp_path / "here.yaml"
    result = CliRunner().invoke(
        app, ["measure", "-o", str(file), "--threads", "1", "--seconds", "0.05", "--compute-watts", "50"]
    )
    assert result.exit_code == 0, result.output
    profile = read_profile(file)
    assert profile.power.compute == 50
    assert isinstance(profile.power.idle, Estimate)
    assert profile.provenance.verified is False
    assert profile.compute.fp32_achievable.nominal > 1e8
    assert "fedadc_cnn, moon, batch 2" in result.output
    assert "Mean error" in result.output


def test_a_file_that_exists_is_left_alone(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("mine", encoding="utf-8")
    result = CliRunner().invoke(app, ["measure", "-o", str(file)])
    assert result.exit_code != 0
    assert Path(file).read_text(encoding="utf-8") == "mine"
