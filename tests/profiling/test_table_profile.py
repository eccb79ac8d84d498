"""From a table of step times to a profile and its error, on a device whose rates are known."""

import json
import os
from pathlib import Path

import pytest

from edgefl.errors import UserError
from edgefl.fleet import load_profile, read_profile, step_seconds
from edgefl.fleet.changed_profile import slower
from edgefl.fleet.figure import value
from edgefl.fleet.fitting import Rates
from edgefl.profiling.step_table import read_step_table
from edgefl.profiling.table_profile import Compared, Errors, errors_by

from .test_step_table import run

DEVICE = Rates(
    20e9,
    1e9,
    50e-6,
    2e-3,
    {
        "convolution-depthwise-forward": (20e9, 8e7, 50e-6),
        "convolution-depthwise-backward": (3e8, 1e9, 50e-6),
        "convolution-pointwise-forward": (6e9, 1e9, 50e-6),
        "matrix-product": (40e9, 1e9, 50e-6),
    },
)
MODELS = ("cnn", "vgg9", "squeezenet")


@pytest.fixture(name="table", scope="module")
def table_fixture(tmp_path_factory):
    """A table of the times of the invented device."""
    file = tmp_path_factory.mktemp("table") / "invented.csv"
    head = "model,batch,shape,seconds\n"
    steps = [(model, batch) for model in MODELS for batch in (2, 8)]
    file.write_text(head + "".join(f"{model},{batch},3x32x32,1\n" for model, batch in steps), encoding="utf-8")
    counted = read_step_table(file).times
    rows = "".join(
        f"{each.model},{each.text.split()[-1]},3x32x32,{DEVICE.seconds(each.operators)}\n" for each in counted
    )
    file.write_text(head + rows, encoding="utf-8")
    return file


@pytest.fixture(name="times", scope="module")
def times_fixture(table):
    return read_step_table(table).times


def test_fit_writes_a_profile_that_check_confirms(table, times, tmp_path):
    file = tmp_path / "invented.yaml"
    output = run("fit", table, "-o", file, "--like", "raspberry-pi-4", "--framework", "PyTorch 9.9")
    assert "mean error of the fit" in output
    profile = read_profile(file)
    evidence = profile.evidence("compute.fp32_achievable")
    assert (evidence.kind, evidence.count, evidence.framework) == ("fitted", 6, "PyTorch 9.9")
    assert 0 < evidence.error < 0.5
    assert profile.power == load_profile("raspberry-pi-4").power
    assert profile.core_speed == pytest.approx(load_profile("raspberry-pi-4").core_speed, rel=1e-3)
    found = json.loads(run("check", file, table, "--json"))
    assert found["count"] == 6
    assert found["mean_absolute_error"] < 0.05
    assert {name: each["count"] for name, each in found["families"].items()} == {"cnn": 2, "vgg": 2, "squeezenet": 2}
    for step, time in zip(found["steps"], times, strict=True):
        assert step["predicted_seconds"] == step_seconds(profile, time.operators)
        assert step["error"] == pytest.approx(step["predicted_seconds"] / time.seconds - 1)


@pytest.mark.full
def test_fit_needs_no_other_profile_and_states_what_the_user_gives(table, tmp_path):
    run("fit", table, "-o", tmp_path / "alone.yaml", "--idle-watts", "0.5")
    profile = read_profile(tmp_path / "alone.yaml")
    assert (profile.name, profile.kind, profile.power.idle) == ("alone", "sbc", 0.5)
    assert value(profile.compute.fp32_achievable) == pytest.approx(20e9, rel=0.3)
    options = ["--like", "laptop-8-core", "--idle-watts", "6", "--framework", "PyTorch 9.9", "--steps"]
    run("fit", table, "-o", tmp_path / "own.yaml", *options)
    profile = read_profile(tmp_path / "own.yaml")
    derivation = profile.provenance.derivation
    assert (profile.power.idle, derivation["power.idle"]) == (6, "given by the user")
    assert derivation["power.compute"] == load_profile("laptop-8-core").provenance.derivation["power.compute"]
    assert profile.evidence("compute.measured_steps").framework == "PyTorch 9.9"


def test_options_without_effect_are_refused(table, tmp_path):
    with pytest.raises(UserError, match="--like NAME"):
        run("fit", "--steps", table, "-o", tmp_path / "own.yaml")
    (tmp_path / "measured.json").write_text('{"format": "other"}', encoding="utf-8")
    measured = ["fit", tmp_path / "measured.json", "-o", tmp_path / "own.yaml"]
    with pytest.raises(UserError, match="--framework needs a CSV table"):
        run(*measured, "--framework", "PyTorch 9.9")
    assert not (tmp_path / "own.yaml").exists()


def test_a_name_that_no_profile_can_have_is_refused_before_the_fit(tmp_path):
    with pytest.raises(UserError, match=r"--name: expected a name of letters, digits.*found 'my board'"):
        run("fit", tmp_path / "missing.csv", "-o", tmp_path / "my board.yaml")


@pytest.mark.full
def test_check_draws_predicted_over_measured(table, tmp_path):
    run("check", "raspberry-pi-4", table, "-o", tmp_path / "check.svg")
    text = (tmp_path / "check.svg").read_text(encoding="utf-8")
    assert "predicted seconds of a step" in text
    assert "squeezenet" in text


def test_errors_are_means_and_medians_of_sizes(times):
    compared = [
        Compared(time, time.seconds * factor) for time, factor in zip(times[:4], (0.25, 1.0, 4.0, 16.0), strict=True)
    ]
    errors = Errors.of(compared)
    assert (errors.mean_absolute, errors.median_absolute, errors.mean) == pytest.approx((3.0, 3.0, 1.0))
    assert errors_by("family", compared)["cnn"].mean_absolute == pytest.approx(1.0)


def test_times_far_slower_than_predicted_give_wide_bounds_and_doubt_the_stack(tmp_path):
    file = tmp_path / "steps.csv"
    file.write_text("model,batch,seconds\ncnn,8,0.01\nsqueezenet,2,3\nvgg9,8,4\n", encoding="utf-8")
    output = run("fit", file, "-o", tmp_path / "own.yaml", "--like", "raspberry-pi-4")
    profile = read_profile(tmp_path / "own.yaml")
    rate, error = profile.compute.fp32_achievable, profile.evidence("compute").error
    assert error > 1
    assert value(rate, "high") / value(rate) == pytest.approx(1 + error, rel=1e-3)
    assert str(profile.evidence("compute")) == f"fitted, a factor of {1 + error:.2g}"
    assert "Another software stack? raspberry-pi-4 is of PyTorch 1.13.1;" in output
    assert "Memory and watts that no option gives are copied from raspberry-pi-4" in profile.description


@pytest.mark.parametrize(
    ("seconds", "settings", "told"),
    [
        (0.1, "", ""),
        (100, "", "line 2: 100 s, a similar device"),
        (0.1, "training.local.input={seconds: 70 ms}", "reading alone takes 0.56 s"),
    ],
)
def test_times_of_another_unit_are_doubted(tmp_path, seconds, settings, told):
    file = tmp_path / "steps.csv"
    file.write_text(f"model,batch,seconds,settings\ncnn,8,{seconds},{settings}\n", encoding="utf-8")
    output = run("fit", file, "-o", tmp_path / "own.yaml", "--like", "raspberry-pi-4")
    assert told in output
    assert ("warning" in output) == bool(told)


def test_too_few_times_are_refused(tmp_path):
    file = tmp_path / "few.csv"
    file.write_text("model,batch,seconds\ncnn,8,1\ncnn,16,2\n", encoding="utf-8")
    with pytest.raises(UserError, match="at least 4 measured times"):
        run("fit", file, "-o", tmp_path / "few.yaml")
    assert not (tmp_path / "few.yaml").exists()
    for rows, error in (("cnn,8,1", 1.0), ("cnn,8,1\ncnn,16,2", 0.6)):
        file.write_text(f"model,batch,seconds\n{rows}\n", encoding="utf-8")
        said = run("fit", file, "-o", tmp_path / f"{error}.yaml", "--like", "raspberry-pi-4")
        assert "Too few to predict one from the others" in said
        made = read_profile(tmp_path / f"{error}.yaml")
        assert made.evidence("compute").error == error
        low, nominal, high = (made.rates(bound)[2] for bound in ("low", "nominal", "high"))
        assert min(nominal / low, high / nominal) > 1 + error - 1e-3


def test_check_names_the_step_of_each_time(tmp_path):
    file = tmp_path / "steps.csv"
    rows = "cnn,fedavg,8,1,\ncnn,fedavg,16,1,\ncnn,fedprox,16,1,training.local.momentum=0.9\n"
    file.write_text("model,method,batch,seconds,settings\n" + rows, encoding="utf-8")
    lines = run("check", "raspberry-pi-4", file).splitlines()[1:4]
    steps = ["cnn, fedavg, batch 8", "cnn, fedavg, batch 16", "cnn, fedprox, batch 16, training.local.momentum=0.9"]
    assert [line.split("  ")[0] for line in lines] == steps
    found = json.loads(run("check", "raspberry-pi-4", file, "--json"))["steps"]
    assert [(each["line"], each["step"]) for each in found] == list(zip((2, 3, 4), steps, strict=True))
    run("fit", file, "--steps", "-o", tmp_path / "own.yaml", "--like", "raspberry-pi-4")
    said = run("check", tmp_path / "own.yaml", file)
    assert "3 of these steps are, or are similar to, the profile's measured steps" in said


def pi_table():
    if "EDGEFL_DATA" not in os.environ:
        pytest.skip("EDGEFL_DATA is not set: no measured step times")
    path = Path(os.environ["EDGEFL_DATA"], "devices", "raspberry_pi_4_training.csv")
    if not path.exists():
        pytest.skip(f"{path} is missing")
    return path


@pytest.mark.extras
def test_the_shipped_raspberry_pi_4_predicts_a_real_one(tmp_path):
    pytest.importorskip("timm")
    header, *rows = pi_table().read_text(encoding="utf-8").splitlines(keepends=True)
    names = ("resnet18,", "mobilenetv2_050,", "vit_tiny,")
    file = tmp_path / "some.csv"
    file.write_text(header + "".join(row for row in rows if row.startswith(names)), encoding="utf-8")
    found = json.loads(run("check", "raspberry-pi-4", file, "--json"))
    assert found["count"] == 6
    assert found["mean_absolute_error"] < 0.12


@pytest.mark.full
@pytest.mark.extras
def test_the_derived_raspberry_pi_5_predicts_what_its_evidence_says(tmp_path):
    """Four step times of a notebook of jafermarq/federated-embedded-vision."""
    pytest.importorskip("timm")
    measured = {"mnasnet_075": 5.81, "mnasnet_100": 7.23, "ghostnetv2_100": 9.42, "ghostnetv2_160": 16.22}
    rows = "".join(f"{name},{name},16,3x224x224,1000,{seconds}\n" for name, seconds in measured.items())
    file = tmp_path / "five.csv"
    file.write_text("model,timm_name,batch,image,classes,seconds\n" + rows, encoding="utf-8")
    found = json.loads(run("check", "raspberry-pi-5", file, "--json"))
    evidence = load_profile("raspberry-pi-5").evidence("compute")
    assert found["count"] == 4 < evidence.count  # the others are of federated rounds
    assert found["mean_absolute_error"] == pytest.approx(0.137, abs=0.001)


@pytest.mark.release
@pytest.mark.extras
def test_families_that_were_left_out_are_predicted(tmp_path):
    pytest.importorskip("timm")
    output = run("fit", pi_table(), "-o", tmp_path / "pi.yaml", "--like", "raspberry-pi-4")
    profile, shipped = read_profile(tmp_path / "pi.yaml"), load_profile("raspberry-pi-4")
    assert profile.evidence("compute").count == 63
    assert profile.evidence("compute").error < 0.15, output
    assert value(profile.compute.fp32_achievable) == pytest.approx(value(shipped.compute.fp32_achievable), rel=0.02)


def test_a_step_that_reads_its_samples_is_fitted_with_them(tmp_path):
    file, board = tmp_path / "read.csv", load_profile("raspberry-pi-4")
    slow = slower(board, 2)

    def rows(seconds):
        lines = [
            f'{model},{batch},"training.local.input={{seconds: 5 ms}}",{next(seconds)}'
            for model, batch in (("cnn", 4), ("squeezenet", 2), ("vgg9", 8))
        ]
        file.write_text("\n".join(["model,batch,settings,seconds", *lines]), encoding="utf-8")
        return read_step_table(file).times

    times = rows(iter([1, 1, 1]))
    assert [each.on(board) - step_seconds(board, each.operators) for each in times] == pytest.approx(
        [0.02 / board.core_speed, 0.01 / board.core_speed, 0.04 / board.core_speed]
    )
    rows(iter([each.on(slow) for each in times]))
    run("fit", file, "-o", tmp_path / "slow.yaml", "--like", "raspberry-pi-4")
    assert read_profile(tmp_path / "slow.yaml").core_speed == pytest.approx(slow.core_speed, rel=0.2)
    assert json.loads(run("check", tmp_path / "slow.yaml", file, "--json"))["mean_absolute_error"] < 0.05
