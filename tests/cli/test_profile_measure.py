"""``edgefl profile measure``, ``script`` and ``fit``: valid profiles, from one way of measuring and fitting."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from edgefl.cli.profile import app
from edgefl.cpu_quota import CpuQuota
from edgefl.errors import UserError
from edgefl.fleet import Estimate, load_profile, read_profile
from edgefl.profiling import measurement as measuring
from edgefl.profiling.measure_device import main
from edgefl.profiling.measured_profile import Checked, Unmeasured, fit_of, profile_data
from edgefl.profiling.measurement import HELD_OUT, HeldOut, measurement_of

from ..profiling.test_step_table import run

ALL = main.cases()
QUICK = {
    name: case
    for name, case in ALL.items()
    if ("plain" in name or "linear" in name or "1000 numbers" in name or "50000 numbers" in name)
    and "batch 64" not in name
} | {"step of fire, batch 4": ALL["step of fire, batch 4"]}


@pytest.fixture(name="measured", scope="module")
def measured_fixture(tmp_path_factory):
    """What the script writes where it has time for few cases."""
    file = tmp_path_factory.mktemp("device") / "measured.json"
    found = main.measurement(4.0, 1, lambda text: None, QUICK)
    file.write_text(json.dumps(found), encoding="utf-8")
    return file


def test_no_family_and_no_method_of_the_check_is_in_the_fit():
    networks = " ".join(name for name in ALL if name.startswith("step of"))
    assert len(HELD_OUT) >= 6
    assert not any(step.model in networks for step in HELD_OUT)
    assert not any(step.method in ("fedavg", "fedprox") for step in HELD_OUT)


def test_more_threads_than_processors_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"--threads: .* found 100000"):
        run("measure", "-o", tmp_path / "here.yaml", "--threads", "100000")


@pytest.mark.full
def test_measure_writes_a_profile_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(main, "cases", lambda: QUICK)
    monkeypatch.setattr(measuring, "HELD_OUT", (HeldOut("fedadc_cnn", "moon", 2),))
    file = tmp_path / "here.yaml"
    output = run("measure", "-o", file, "--threads", "1", "--seconds", "4", "--compute-watts", "50")
    profile = read_profile(file)
    assert profile.power.compute == 50
    assert isinstance(profile.power.idle, Estimate)
    assert profile.provenance.verified is False
    assert profile.compute.fp32_achievable.nominal > 1e8
    assert profile.compute.operator_rates
    assert "fedadc_cnn, moon, batch 2" in output
    assert "Mean error" in output
    assert f"{len(QUICK)} cases that are fitted, and 1 that check the fit" in output
    assert profile.provenance.evidence["compute"].error is not None


def lie(measured, tmp_path, **factors):
    """The measurement with other seconds of its whole steps, or another spread of all its cases."""
    data = json.loads(measured.read_text(encoding="utf-8"))
    for number, (name, case) in enumerate(data["cases"].items()):
        case["spread"] = factors.get("spread", 1.0)
        if name.startswith("step of"):
            case["seconds"] *= factors.get("seconds", 1.0) ** (-1) ** number
    file = tmp_path / "lie.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    return file


@pytest.mark.full
@pytest.mark.parametrize(
    ("factors", "reason"),
    [
        ({"spread": 1.5}, f"{len(QUICK)} of {len(QUICK)} cases were disturbed"),
        ({"seconds": 20.0}, "the mean error is "),
    ],
)
def test_a_poor_measurement_is_a_warning_that_says_what_to_do(measured, tmp_path, factors, reason):
    found = CliRunner().invoke(app, ["fit", str(lie(measured, tmp_path, **factors)), "-o", str(tmp_path / "a.yaml")])
    assert found.exit_code == 0
    assert "warning: the profile is not reliable: " in found.stderr
    assert reason in found.stderr


@pytest.mark.full
def test_the_bounds_include_the_error_of_the_check(measured):
    measurement = measurement_of(json.loads(measured.read_text()))
    alone, operators = fit_of(measurement), HELD_OUT[2].operators()
    predicted = alone.rates.seconds(operators)
    fit = fit_of(measurement, [Checked("slow", operators, predicted / 1.5, 1.0), Checked("x", operators, predicted, 1)])
    assert fit.check == pytest.approx(0.25)
    assert (alone.check, alone.error) == (None, alone.misfit)
    far = replace(fit, misfit=0.02, check=0.89)
    data = profile_data(measurement, far, Unmeasured("mine"))
    bandwidth = data["compute"]["memory_bandwidth"]
    assert bandwidth["high"] / bandwidth["nominal"] == pytest.approx(1.89, rel=1e-3)
    assert bandwidth["nominal"] / bandwidth["low"] == pytest.approx(1.89, rel=1e-3)
    assert data["provenance"]["evidence"]["compute"]["error"] == 0.89


def test_a_file_that_exists_is_left_alone(tmp_path, measured):
    file = tmp_path / "mine.yaml"
    file.write_text("mine", encoding="utf-8")
    for command in (["measure"], ["script"], ["fit", str(measured)]):
        with pytest.raises(UserError, match="exists already"):
            run(*command, "-o", file)
    assert file.read_text(encoding="utf-8") == "mine"


@pytest.mark.full
def test_the_script_runs_without_edgefl_and_its_file_is_read(tmp_path):
    script, found = tmp_path / "measure_device.pyz", tmp_path / "found.json"
    run("script", "-o", script)
    # -I: neither the working directory nor PYTHONPATH; an import of edgefl would fail.
    code = "import sys, runpy; sys.modules['edgefl'] = None; "
    code += f"sys.argv = ['x', '-o', {str(found)!r}, '--seconds', '2', '--threads', '1', '--only', 'linear']; "
    code += f"runpy.run_path({str(script)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"round 1 of 5: 12 cases, \d+ s since the start", done.stdout)
    data = json.loads(found.read_text(encoding="utf-8"))
    assert len(data["cases"]) == 12
    assert all(case["seconds"] > 0 for case in data["cases"].values())
    with pytest.raises(UserError, match="at least 4 whole steps and 20 chains of layers, found 0 and 12"):
        run("fit", found, "-o", tmp_path / "board.yaml")


@pytest.mark.full
def test_import_makes_a_profile_with_power_of_another(measured, tmp_path):
    file = tmp_path / "my-phone.yaml"
    run("fit", measured, "-o", file, "--like", "phone-mid-range", "--idle-watts", "0.4")
    profile, other = read_profile(file), load_profile("phone-mid-range")
    assert (profile.name, profile.kind) == ("my-phone", "phone")
    assert profile.power.idle == 0.4
    assert profile.power.radio == other.power.radio
    assert "matrix-product" in profile.compute.operator_rates


def test_import_says_what_is_wrong_with_a_measurement(measured, tmp_path):
    data = json.loads(measured.read_text(encoding="utf-8"))
    for changes, message in (
        ({"format": "x"}, "expected a file of the measuring script"),
        ({"version": 99}, "expected a measurement of version 2, found 99; run the script"),
        ({"machine": {**data["machine"], "threads": 0}}, "machine.threads"),
        ({"cases": {"linear 64 on 8": {"seconds": float("inf"), "spread": 1, "repetitions": 1}}}, "finite"),
    ):
        file = tmp_path / "wrong.json"
        file.write_text(json.dumps({**data, **changes}), encoding="utf-8")
        with pytest.raises(UserError, match=message.replace(".", r"\.")):
            run("fit", file, "-o", tmp_path / "board.yaml")
    assert not (tmp_path / "board.yaml").exists()


@pytest.mark.full
def test_a_measurement_under_a_quota_records_the_quota(monkeypatch, tmp_path):
    try:
        with CpuQuota():
            pass
    except UserError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(main, "cases", lambda: QUICK)
    monkeypatch.setattr(measuring, "HELD_OUT", ())
    file = tmp_path / "slow.yaml"
    output = run("measure", "-o", file, "--seconds", "1", "--cpu-quota", "0.5")
    profile = read_profile(file)
    assert profile.compute.cpu_quota == 0.5
    assert "50 % of one processor" in profile.description
    assert "the quota alone gives 2." in output
    assert "cpu_quota: 0.5" in run("show", file)


def test_several_threads_under_a_quota_are_refused(tmp_path):
    with pytest.raises(UserError, match="expected 1 thread with --cpu-quota, found 2"):
        run("measure", "-o", tmp_path / "a.yaml", "--threads", "2", "--cpu-quota", "0.5")
