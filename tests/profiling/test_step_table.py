"""Tables of measured step times: what their rows mean, and single steps that take precedence over a roofline."""

import pytest
from typer.testing import CliRunner

from edgefl.cli.profile import app
from edgefl.cost import CostModel
from edgefl.errors import UserError
from edgefl.fleet import load_profile, read_profile, step_evidence, step_seconds
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.registry import MODELS, build_model
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
    table = written(tmp_path, "model,method,batch,milliseconds\ncnn, fedavg, 32, 95\ncnn, fedprox, 32, 120.5\n"
                    "cnn, fedprox, 32, 110\ncnn, fedprox, 32, 300\n")  # fmt: skip
    output = run("fit", "--steps", table, "-o", tmp_path / "mine.yaml", "--like", "raspberry-pi-4")
    assert "4 times of 2 steps" in output
    profile, base = read_profile(tmp_path / "mine.yaml"), load_profile("raspberry-pi-4")
    assert profile.name == "mine"
    steps = profile.evidence("compute.measured_steps")
    assert (steps.kind, steps.count, profile.evidence("compute").kind) == ("measured", 4, "fitted")
    assert step_seconds(profile, operators()) == pytest.approx(0.095)
    repeated = [step_seconds(profile, operators("fedprox"), bound=bound) for bound in ("low", "nominal", "high")]
    assert repeated == pytest.approx([0.11, 0.1205, 0.3])
    assert step_seconds(profile, operators(batch=8)) == step_seconds(base, operators(batch=8))


def test_a_measured_time_serves_in_proportion_for_a_step_of_a_little_more_work(tmp_path):
    table = written(tmp_path, "model,method,batch,seconds\ncnn, fedavg, 32, 29.4\n")
    run("fit", "--steps", table, "-o", tmp_path / "mine.yaml", "--like", "raspberry-pi-4")
    profile, base, more = read_profile(tmp_path / "mine.yaml"), load_profile("raspberry-pi-4"), operators(momentum=0.9)
    low, nominal, high = (step_seconds(profile, more, bound=bound) for bound in ("low", "nominal", "high"))
    assert (low, high) == (pytest.approx(29.4), pytest.approx(nominal**2 / 29.4))
    assert nominal / 29.4 == pytest.approx(step_seconds(base, more) / step_seconds(base, operators()), rel=0.05)
    assert nominal > 29.5
    assert step_evidence(profile, [more]) == f"measured on similar steps, times {nominal / 29.4:.3g}"
    (step,) = profile.compute.measured_steps
    bare = step.model_copy(update={"training_flops": None})  # as in profiles of before
    old = profile.model_copy(update={"compute": profile.compute.model_copy(update={"measured_steps": (bare,)})})
    assert step_seconds(old, operators()) == pytest.approx(29.4)
    assert step_seconds(old, more) == step_seconds(base, more)
    assert step_evidence(old, [operators(), more]) == (
        f"measured; {base.evidence('compute')}, as none of 1 measured steps is similar and has its work counted"
    )


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
        ("model,milliseconds\ncnn,1\n", "expected a column 'batch', found: model, milliseconds"),
        ("model,method,batch,seconds,milliseconds\ncnn,fedavg,8,1,1\n", "one column of times"),
        ("model,method,batch,milliseconds\n", "at least one row"),
        ("model,method,batch,milliseconds\ncnn,fedavg,8\n", "line 2: expected 4 values, found 3"),
        ("model,method,batch,milliseconds\n\ncnn,fedavg,8,95 ms\n", "line 3, milliseconds: .*found '95 ms'"),
        ("model,method,batch,milliseconds\ncnn,fedavg,8,0\n", "line 2, milliseconds: expected a number above 0"),
        ("model,batch,seconds_head\n{torchvision: resnet18},8,1\n", "line 2, head: expected the names"),
        ("model,python,batch,seconds\na,net.py:net,8,1\n", "a: .*/net.py: no such file"),
        ("model,method,batch,milliseconds\ncnn,fedavg,2.5,1\n", "line 2, batch: expected a whole number"),
        ("model,method,batch,milliseconds\nresnet81,fedavg,8,1\n", "line 2, .*did you mean 'resnet18'"),
        ("model,method,batch,milliseconds,shape\ncnn,fedavg,8,1,32\n", "cnn: model .cnn. takes images"),
        ("model,method,batch,milliseconds,alpha\ncnn,fedbr,8,1,9\n", "line 2, alpha: .*at most the model's 4 blocks"),
        ("model,method,batch,milliseconds,settings\ncnn,fedavg,8,1,fleet=[]\n", "line 2, .*does not depend on this"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read_step_table(written(tmp_path, text))


def test_rows_with_mistakes_can_be_skipped(tmp_path):
    texts = []
    text = "model,batch,seconds\ncnn,8,1\nresnet81,8,1\nvgg9,0,1\nvgg9,8,2\nvgg9,8,x\n"
    table = read_step_table(written(tmp_path, text), skip=True, progress=texts.append)
    assert [time.line for time in table.times] == [2, 5]
    assert list(table.left_out) == ["line 3, resnet81", "line 4, vgg9", "line 6, vgg9"]
    assert table.left_out["line 4, vgg9"].startswith("batch: expected a number above 0")
    assert texts[-1] == "5 of 5: vgg9"


PAIRS = (
    "model,torchvision_name,batch,image,classes,seconds_per_step_all,seconds_per_step_head,head\n"
    "small,squeezenet1_1,2,3x64x64,10,0.5,0.2,classifier.1.weight classifier.1.bias\n"
    "smaller,mobilenet_v3_small,2,3x32x32,10,nan,0.1,classifier\n"
)


@pytest.mark.full
def test_a_library_is_named_in_a_column_and_a_row_may_hold_two_times(tmp_path):
    table = read_step_table(written(tmp_path, PAIRS))
    assert [(time.model, time.part, time.seconds) for time in table.times] == [
        ("small", "all", 0.5),
        ("small", "head", 0.2),
        ("smaller", "head", 0.1),
    ]
    whole, head = (sum(each.flops * each.count for each in time.operators) for time in table.times[:2])
    assert whole > 2 * head  # the head alone has no backward pass through the rest
    spec, _ = read_step("{torchvision: squeezenet1_1}", "fedavg", [])
    model = build_model(spec, (3, 64, 64), 10)
    expected = CostModel(model).cost(build_method("fedavg", LocalOptions()), model.depth, 2)
    assert whole == expected.training_flops


def test_a_file_next_to_the_table_gives_the_model(tmp_path):
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(12, 10))\n",
        encoding="utf-8",
    )
    table = read_step_table(written(tmp_path, "model,python,batch,shape,milliseconds\nmine,net.py:net,4,3x2x2,1\n"))
    (product,) = (each for each in table.times[0].operators if each.name == "addmm")
    assert product.flops == 2 * 4 * 12 * 10 + 4 * 10


@pytest.mark.full
def test_a_batch_on_which_a_model_cannot_be_trained_leaves_it_out(tmp_path):
    rows = "model,torchvision_name,batch,image,seconds\ncnn,,2,32,1\none,resnet18,1,32,1\n"
    table = read_step_table(written(tmp_path, rows))
    assert [time.model for time in table.times] == ["cnn"]
    assert "batch norm needs a batch of two or more" in table.left_out["line 3, one"]


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
        "\ufeffmodel,batch,seconds\r\ncnn,8,0.5\r\n",
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


@pytest.mark.parametrize(("image", "shape"), [("16", (3, 16, 16)), ("16x24", (3, 16, 24)), ("1x16x16", (1, 16, 16))])
def test_an_image_has_three_channels_unless_they_are_given(tmp_path, image, shape):
    time = only_time(tmp_path, f"model,batch,image,seconds\ncnn,8,{image},0.5\n")
    assert time.operators == operators(batch=8, shape=shape)
