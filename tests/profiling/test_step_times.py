"""A CSV of measured step times becomes the rows that win over a profile's roofline."""

import pytest
from typer.testing import CliRunner

from edgefl.cli.profile import app
from edgefl.cost import CostModel
from edgefl.errors import UserError
from edgefl.fleet import load_profile, read_profile, step_seconds
from edgefl.methods.build import build_method
from edgefl.methods.local_options import LocalOptions
from edgefl.models.registry import MODELS, build_model
from edgefl.profiling.step_times import read_step_times


def written(tmp_path, text):
    file = tmp_path / "steps.csv"
    file.write_text(text, encoding="utf-8")
    return file


def run(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def operators(method="fedavg", batch=32, shape=(3, 32, 32), classes=10, **local):
    model = build_model(MODELS["cnn"](), shape, classes)
    return CostModel(model).cost(build_method(method, LocalOptions(**local)), model.depth, batch).operators


def test_the_measured_steps_take_their_time_and_others_the_rooflines(tmp_path):
    table = written(tmp_path, "model,method,batch,milliseconds\ncnn, fedavg, 32, 95\ncnn, fedprox, 32, 120.5\n")
    output = run("import", table, "-o", tmp_path / "mine.yaml", "--like", "raspberry-pi-4")
    assert "2 times of 2 steps" in output
    profile, base = read_profile(tmp_path / "mine.yaml"), load_profile("raspberry-pi-4")
    assert profile.name == "mine"
    assert step_seconds(profile, operators()) == pytest.approx(0.095)
    assert step_seconds(profile, operators("fedprox")) == pytest.approx(0.1205)
    assert step_seconds(profile, operators(batch=8)) == step_seconds(base, operators(batch=8))


def test_repeated_rows_give_median_and_bounds(tmp_path):
    rows = "".join(f"cnn,fedavg,32,{seconds}\n" for seconds in (0.4, 0.1, 0.2))
    table = written(tmp_path, "model,method,batch,seconds\n" + rows)
    run("import", table, "-o", tmp_path / "mine.yaml", "--like", "raspberry-pi-4")
    profile = read_profile(tmp_path / "mine.yaml")
    steps = [step_seconds(profile, operators(), bound=bound) for bound in ("low", "nominal", "high")]
    assert steps == pytest.approx([0.1, 0.2, 0.4])


def test_shape_classes_and_settings_belong_to_the_step(tmp_path):
    table = written(
        tmp_path,
        "model,method,batch,milliseconds,shape,classes,settings\n"
        "cnn,fedavg,16,7,1x28x28,62,training.local.momentum=0.9; training.local.weight_decay=1e-4\n",
    )
    run("import", table, "-o", tmp_path / "mine.yaml", "--like", "raspberry-pi-4")
    step = operators(batch=16, shape=(1, 28, 28), classes=62, momentum=0.9, weight_decay=1e-4)
    assert step_seconds(read_profile(tmp_path / "mine.yaml"), step) == pytest.approx(0.007)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,method,batch,ms\ncnn,fedavg,8,1\n", "unknown column 'ms'; expected one of: .*milliseconds"),
        ("model,method,batch,milisecond\ncnn,fedavg,8,1\n", "did you mean 'milliseconds'"),
        ("model,batch,milliseconds\ncnn,8,1\n", "expected a column 'method', found: model, batch, milliseconds"),
        ("model,method,batch\ncnn,fedavg,8\n", "one column of times, 'milliseconds' or 'seconds'"),
        ("model,method,batch,seconds,milliseconds\ncnn,fedavg,8,1,1\n", "one column of times"),
        ("model,method,batch,milliseconds\n", "at least one row"),
        ("", "expected a column 'model', found: nothing"),
        ("model,method,batch,milliseconds\ncnn,fedavg,8\n", "line 2: expected 4 values, found 3"),
        ("model,method,batch,milliseconds\n\ncnn,fedavg,8,95 ms\n", "line 3, milliseconds: .*found '95 ms'"),
        ("model,method,batch,milliseconds\ncnn,fedavg,8,0\n", "line 2, milliseconds: expected a number above 0"),
        ("model,method,batch,milliseconds\ncnn,fedavg,8,nan\n", "line 2, milliseconds: expected a number above 0"),
        ("model,method,batch,milliseconds\ncnn,fedavg,2.5,1\n", "line 2, batch: expected a whole number"),
        ("model,method,batch,milliseconds\nresnet81,fedavg,8,1\n", "line 2, .*did you mean 'resnet18'"),
        ("model,method,batch,milliseconds\ncnn,fedagv,8,1\n", "line 2, .*did you mean 'fedavg'"),
        ("model,method,batch,milliseconds\ncnn,,8,1\n", "line 2, method: expected a value"),
        ("model,method,batch,milliseconds,shape\ncnn,fedavg,8,1,32\n", "line 2"),
        ("model,method,batch,milliseconds,alpha\ncnn,fedbr,8,1,9\n", "line 2, alpha: .*at most the model's 4 blocks"),
        ("model,method,batch,milliseconds,settings\ncnn,fedavg,8,1,fleet=[]\n", "line 2, .*does not depend on this"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read_step_times(written(tmp_path, text))


def test_a_table_without_a_profile_to_stand_on_is_refused(tmp_path):
    table = written(tmp_path, "model,method,batch,milliseconds\ncnn,fedavg,8,1\n")
    with pytest.raises(UserError, match="--like NAME"):
        run("import", table, "-o", tmp_path / "mine.yaml")
    assert not (tmp_path / "mine.yaml").exists()
