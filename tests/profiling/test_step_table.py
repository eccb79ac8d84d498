"""Tables of measured step times: what their rows mean, and single steps that take precedence over a roofline."""

import pytest
from typer.testing import CliRunner

from edgefl.cli.profile import app
from edgefl.cost import CostModel
from edgefl.cost.measure import measure
from edgefl.errors import UserError
from edgefl.fleet import load_profile, read_profile, step_seconds
from edgefl.methods.build import build_method
from edgefl.methods.local_options import LocalOptions
from edgefl.models.registry import MODELS, build_model
from edgefl.profiling import step_table
from edgefl.profiling.step_table import read_step_table
from edgefl.scenario.named_step import read_step


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
    output = run("fit", "--steps", table, "-o", tmp_path / "mine.yaml", "--like", "raspberry-pi-4")
    assert "2 times of 2 steps" in output
    profile, base = read_profile(tmp_path / "mine.yaml"), load_profile("raspberry-pi-4")
    assert profile.name == "mine"
    steps = profile.evidence("compute.measured_steps")
    assert (steps.kind, steps.count, profile.evidence("compute").kind) == ("measured", 2, "fitted")
    assert step_seconds(profile, operators()) == pytest.approx(0.095)
    assert step_seconds(profile, operators("fedprox")) == pytest.approx(0.1205)
    assert step_seconds(profile, operators(batch=8)) == step_seconds(base, operators(batch=8))


def test_repeated_rows_give_median_and_bounds(tmp_path):
    rows = "".join(f"cnn,fedavg,32,{seconds}\n" for seconds in (0.4, 0.1, 0.2))
    table = written(tmp_path, "model,method,batch,seconds\n" + rows)
    run("fit", "--steps", table, "-o", tmp_path / "mine.yaml", "--like", "raspberry-pi-4")
    profile = read_profile(tmp_path / "mine.yaml")
    steps = [step_seconds(profile, operators(), bound=bound) for bound in ("low", "nominal", "high")]
    assert steps == pytest.approx([0.1, 0.2, 0.4])


def test_shape_classes_and_settings_belong_to_the_step(tmp_path):
    table = written(
        tmp_path,
        "model,method,batch,milliseconds,shape,classes,settings\n"
        "cnn,fedavg,16,7,1x28x28,62,training.local.momentum=0.9; training.local.weight_decay=1e-4\n",
    )
    run("fit", "--steps", table, "-o", tmp_path / "mine.yaml", "--like", "raspberry-pi-4")
    step = operators(batch=16, shape=(1, 28, 28), classes=62, momentum=0.9, weight_decay=1e-4)
    assert step_seconds(read_profile(tmp_path / "mine.yaml"), step) == pytest.approx(0.007)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,method,batch,ms\ncnn,fedavg,8,1\n", "one column of times, such as 'seconds'.*found: .*, ms"),
        ("model,bacth,batch,seconds\ncnn,8,8,1\n", "unknown column 'bacth'; did you mean 'batch'"),
        ("model,batch,seconds,shape\ncnn,8,1,3x99999x99999\n", "line 2, shape: expected at most 67,108,864 numbers"),
        ("model,batch,seconds,shape\ncnn,8,1," + "9" * 5000 + "\n", "line 2, shape: expected a shape such as"),
        ("model,batch,seconds,classes\ncnn,8,1,1e12\n", "line 2, classes: expected a whole number up to 10,000,000"),
        ("timm_name,torchvision_name,batch,seconds\n,,8,1\n", "line 2, model: expected a value"),
        (
            'model,batch,seconds,image\ncnn,8,1,"(3, 64, 64)"\n',
            r"expected a shape such as 3x32x32, found '\(3, 64, 64\)'",
        ),
        ("model,method,batch,milisecond\ncnn,fedavg,8,1\n", "did you mean 'milliseconds'"),
        ("model,milliseconds\ncnn,1\n", "expected a column 'batch', found: model, milliseconds"),
        ("model,method,batch\ncnn,fedavg,8\n", "one column of times, such as 'seconds'"),
        ("model,method,batch,seconds,milliseconds\ncnn,fedavg,8,1,1\n", "one column of times"),
        ("model,method,batch,milliseconds\n", "at least one row"),
        ("", "expected a column 'model', found: nothing"),
        ("model,method,batch,milliseconds\ncnn,fedavg,8\n", "line 2: expected 4 values, found 3"),
        ("model,method,batch,milliseconds\n\ncnn,fedavg,8,95 ms\n", "line 3, milliseconds: .*found '95 ms'"),
        ("model,method,batch,milliseconds\ncnn,fedavg,8,0\n", "line 2, milliseconds: expected a number above 0"),
        ("model,batch,seconds\ncnn,8,1e12\n", "line 2, seconds: expected 1e-09 s to 1e\\+09 s, found 1e\\+12 s"),
        ("model,method,batch,milliseconds\ncnn,fedavg,8,inf\n", "line 2, milliseconds: expected a number above 0"),
        ("model,method,batch,milliseconds\ncnn,fedavg,8,nan\n", "at least one time, found none"),
        ("model,batch,seconds_all,seconds\ncnn,8,1,1\n", "expected one column of times"),
        ("model,batch,seconds_head\n{torchvision: resnet18},8,1\n", "line 2, head: expected the names"),
        (
            "model,batch,seconds_head,head\ncnn,8,1,head\n",
            "line 2, model: .*a library or .*, found edgefl's cnn",
        ),
        ("model,batch,seconds,image\ncnn,8,1,0\n", "line 2, image: expected a shape such as"),
        ("model,batch,seconds,image,shape\ncnn,8,1,32,3x32x32\n", "expected one column 'shape' or 'image', found more"),
        ("model,python,batch,seconds\na,net.py:net,8,1\n", "a: .*/net.py: no such file"),
        ("model,timm_name,torchvision_name,batch,seconds\na,b,c,8,1\n", "line 2, torchvision_name: expected one of"),
        ("model,torchvision_name,batch,seconds\na,resnet81,8,1\n", "resnet81"),
        ("model,method,batch,milliseconds\ncnn,fedavg,2.5,1\n", "line 2, batch: expected a whole number"),
        ("model,method,batch,milliseconds\nresnet81,fedavg,8,1\n", "line 2, .*did you mean 'resnet18'"),
        ("model,method,batch,milliseconds\ncnn,fedagv,8,1\n", "line 2, .*did you mean 'fedavg'"),
        ("model,method,batch,milliseconds\n,fedavg,8,1\n", "line 2, model: expected a value"),
        ("model,method,batch,milliseconds,shape\ncnn,fedavg,8,1,32\n", "cnn: model .cnn. takes images"),
        ("model,method,batch,milliseconds,alpha\ncnn,fedbr,8,1,9\n", "line 2, alpha: .*at most the model's 4 blocks"),
        ("model,method,batch,milliseconds,settings\ncnn,fedavg,8,1,fleet=[]\n", "line 2, .*does not depend on this"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read_step_table(written(tmp_path, text))


def test_a_table_without_a_profile_to_stand_on_is_refused(tmp_path):
    table = written(tmp_path, "model,method,batch,milliseconds\ncnn,fedavg,8,1\n")
    with pytest.raises(UserError, match="--like NAME"):
        run("fit", "--steps", table, "-o", tmp_path / "mine.yaml")
    assert not (tmp_path / "mine.yaml").exists()


PAIRS = (
    "model,torchvision_name,batch,image,classes,seconds_per_step_all,seconds_per_step_head,head\n"
    "small,squeezenet1_1,2,3x64x64,10,0.5,0.2,classifier.1.weight classifier.1.bias\n"
    "smaller,mobilenet_v3_small,2,3x32x32,10,nan,0.1,classifier\n"
)


def test_a_library_is_named_in_a_column_and_a_row_may_hold_two_times(tmp_path):
    table = read_step_table(written(tmp_path, PAIRS))
    assert [(time.model, time.part, time.seconds) for time in table.times] == [
        ("small", "all", 0.5),
        ("small", "head", 0.2),
        ("smaller", "head", 0.1),
    ]
    whole, head = (sum(each.flops * each.count for each in time.operators) for time in table.times[:2])
    assert whole > 2 * head  # the head alone has no backward pass through the rest
    model = build_model(OrdinaryModelSpec("squeezenet1_1"), (3, 64, 64), 10)
    expected = CostModel(model).cost(build_method("fedavg", LocalOptions()), model.depth, 2)
    assert whole == expected.training_flops


def OrdinaryModelSpec(name):  # noqa: N802
    (spec, _) = read_step(f"{{torchvision: {name}}}", "fedavg", [])
    return spec


def test_a_file_next_to_the_table_gives_the_model(tmp_path):
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(12, 10))\n",
        encoding="utf-8",
    )
    table = read_step_table(written(tmp_path, "model,python,batch,shape,milliseconds\nmine,net.py:net,4,3x2x2,1\n"))
    (product,) = (each for each in table.times[0].operators if each.name == "addmm")
    assert product.flops == 2 * 4 * 12 * 10 + 4 * 10


def test_a_model_that_cannot_be_counted_is_left_out_with_its_reason(tmp_path):
    rows = "model,batch,seconds,shape\nvgg9,2,1,3x32x32\ncnn,2,1,3x4x4\n"
    table = read_step_table(written(tmp_path, rows))
    assert [time.model for time in table.times] == ["vgg9"]
    assert "8×8 or more" in table.left_out["cnn"]


def test_a_batch_on_which_a_model_cannot_be_trained_leaves_it_out(tmp_path):
    rows = "model,torchvision_name,batch,image,seconds\nvgg9,,2,32,1\none,resnet18,1,32,1\ntwo,resnet18,1,64,1\n"
    table = read_step_table(written(tmp_path, rows))
    assert [time.model for time in table.times] == ["vgg9", "two"]
    assert "batch norm needs a batch of two or more" in table.left_out["one"]


def test_a_step_in_several_rows_is_counted_once(tmp_path, monkeypatch):
    counted = []
    monkeypatch.setattr(step_table, "measure", lambda *step: counted.append(step) or measure(*step))
    rows = "model,batch,seconds\n" + "cnn,8,1\ncnn,16,1\n" * 20
    assert len(read_step_table(written(tmp_path, rows)).times) == 40
    assert len(counted) == 2


def test_the_family_comes_from_the_column_or_the_title(tmp_path):
    rows = "model,family,batch,seconds\nvgg9,,2,1\ncnn,mine,2,1\n"
    assert [time.family for time in read_step_table(written(tmp_path, rows)).times] == ["vgg", "mine"]


def only_time(tmp_path, text):
    (time,) = read_step_table(written(tmp_path, text)).times
    return time


@pytest.mark.parametrize(
    "text",
    [
        "model;batch;seconds\ncnn;8;0,5\n",
        "model\tbatch\tseconds\ncnn\t8\t0.5\n",
        "Model, Batch ,Seconds\ncnn,8,0.5\n",
        "\ufeffmodel,batch,seconds\r\ncnn,8,0.5\r\n",
        "model,batch,seconds,\ncnn,8,0.5,\n",
        "model,batch,seconds_all,seconds_head,head\ncnn,8,0.5,N/A,\n",
        "# a board, 2026; no fan\n\nmodel,batch,seconds\n# warm\ncnn,8,0.5\n",
    ],
)
def test_a_table_of_a_spreadsheet_is_read_as_well(tmp_path, text):
    assert (only_time(tmp_path, text).seconds, only_time(tmp_path, text).operators) == (0.5, operators(batch=8))


def test_columns_of_other_names_are_ignored_and_named(tmp_path):
    text = "model,batch,seconds,notes,device\ncnn,8,0.5,warm,pi\n"
    assert read_step_table(written(tmp_path, text)).ignored == ("notes", "device")
    assert "Ignored columns: notes, device" in run("check", "raspberry-pi-4", tmp_path / "steps.csv")


def test_the_name_in_a_library_is_a_title_too(tmp_path):
    time = only_time(tmp_path, "torchvision_name,batch,image,seconds\nsqueezenet1_1,2,64x64,0.5\n")
    assert (time.model, time.family) == ("squeezenet1_1", "squeezenet")


@pytest.mark.parametrize("image", ["64", "64x64", "3x64x64", " 64×64 "])
def test_an_image_has_three_channels_unless_they_are_given(tmp_path, image):
    time = only_time(tmp_path, f"model,batch,image,seconds\ncnn,8,{image},0.5\n")
    assert time.operators == operators(batch=8, shape=(3, 64, 64))
