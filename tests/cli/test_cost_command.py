"""``edgefl cost`` and ``edgefl models show`` print what the cost model measures."""

import json
from pathlib import Path

import pytest
import yaml

from edgefl.cli.entry import main
from edgefl.cost import CostModel
from edgefl.fleet import load_profile, step_seconds, value
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.registry import MODELS, build_model


def run(capsys, *arguments):
    code = main(["cost", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def board(tmp_path):
    """Writes a board with so much memory for training."""

    def write(memory):
        small = yaml.safe_load(Path("device_profiles/raspberry-pi-4.yaml").read_text())
        small["name"], small["memory"]["training"] = "small", memory
        (tmp_path / "small.yaml").write_text(yaml.safe_dump(small))
        return tmp_path / "small.yaml"

    return write


def test_json_has_the_promised_keys_for_a_batch_of_one_image(capsys):
    code, output, _ = run(capsys, "--model", "cnn", "--method", "fedavg", "--shape", "1x28x28", "--json")
    data = json.loads(output)
    assert code == 0
    promised = {
        *("layer_macs", "forward_macs", "training_flops", "bytes_touched", "peak_memory_bytes"),
        *("stored_parameters", "parameters", "download_bytes", "upload_bytes"),
    }
    assert promised <= set(data)
    # Two convolutions of 3×3 on 28×28 and 14×14 pixels, two linear layers.
    assert data["layer_macs"] == 28 * 28 * 16 * 9 + 14 * 14 * 32 * 16 * 9 + 1568 * 64 + 640
    assert data["batch"] == 1
    assert not {"share", "levels"} & set(data)


def test_a_device_is_asked_without_a_scenario(capsys, board):
    """The seconds and joules are those of a one-client round in a scenario; memory too small is said."""
    devices = f"raspberry-pi-4,{board('1 MB')}"
    step = ("--model", "cnn", "--shape", "1x28x28", "--batch", "20")
    code, output, _ = run(capsys, *step, "--images", "50", "--on", devices, "--json")
    assert code == 0
    pi, other = json.loads(output)["devices"]
    assert (pi["fits"], other["fits"]) == (True, False)
    profile = load_profile("raspberry-pi-4")
    costs = CostModel(build_model(MODELS["cnn"](), (1, 28, 28), 10))
    twenty, ten = (costs.cost(build_method("fedavg", LocalOptions()), 4, size).operators for size in (20, 10))
    seconds = 2 * step_seconds(profile, twenty) + step_seconds(profile, ten)
    assert pi["compute_seconds"]["nominal"] == pytest.approx(seconds, rel=1e-9)
    assert pi["joules"]["nominal"] == pytest.approx(value(profile.power.compute) * seconds, rel=1e-9)
    reads = ("--images", "50", "--on", devices, "--json", "--set", "training.local.input={seconds: 2 ms}")
    joules = json.loads(run(capsys, *step, *reads)[1])["devices"][0]["joules"]["nominal"]
    assert joules - pi["joules"]["nominal"] == pytest.approx(0.1 * 3.81)  # W of one busy core
    code, output, _ = run(capsys, *step, "--on", devices)
    assert "small" in output
    assert "500 images in batches of 20: 25 steps" in output


def test_models_batches_and_options_are_compared_on_devices(capsys, board):
    asked = ["--shape", "1x8x8", *("--model", "cnn", "--model", "{name: cnn, width: 4}")]
    asked += ["--model", "{torchvision: resnet18}", "--batch", "2,40", "--grid", "training.local.accumulate=1,20"]
    asked += ["--on", f"raspberry-pi-4,{board('0.5 MB')}"]
    code, output, _ = run(capsys, *asked, "--json")
    assert code == 0
    rows = json.loads(output)["settings"]
    assert len(rows) == 3 * 2 * 2
    assert ["refused" in row for row in rows] == 8 * [False] + 4 * [True]
    whole, parts = rows[1], rows[2]
    assert (parts["batch"], parts["set"], parts["shape"]) == (2, ["training.local.accumulate=20"], [1, 8, 8])
    one, other = (row["devices"] for row in (whole, parts))
    assert [each["fits"] for each in (*one, *other)] == [True, False, True, True]
    assert one[1]["why"].endswith("the device has 0.5 MB for it")
    assert one[0]["steps"] == other[0]["steps"] == 13
    costs = CostModel(build_model(MODELS["cnn"](), (1, 8, 8), 10))
    cost = costs.cost(build_method("fedavg", LocalOptions(batch=2, accumulate=20)), 4, 40)
    assert other[0]["step_seconds"]["nominal"] == step_seconds(load_profile("raspberry-pi-4"), cost.operators)
    assert other[0]["step_seconds"]["nominal"] > 5 * one[0]["step_seconds"]["nominal"]
    code, output, _ = run(capsys, *asked)
    assert "resnet18, batch 2, accumulate 1: " in " ".join(output.split())


def test_options_are_set_by_their_path_in_a_scenario(capsys):
    changes = ("--set", "model.stem=imagenet", "--set", "model.norm=batch", "--set", "methods.0.codec.up.kind=cast")
    _, output, _ = run(capsys, "--model", "resnet18", "--method", "fedbr", "--json", *changes)
    data = json.loads(output)
    assert data["parameters"] == 11_181_642
    assert data["upload_bytes"] == pytest.approx(data["download_bytes"] / 2, rel=1e-3)  # with what is not a weight


@pytest.mark.full
def test_a_method_that_cannot_train_the_model_is_listed_with_the_reason(capsys):
    _, output, _ = run(capsys, "--model", "shufflenet", "--all", "--json")
    refused = {row["method"]: row["refused"] for row in json.loads(output)["methods"] if "refused" in row}
    assert "grouped convolutions" in refused["fedalign"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "cnn"), "--on DEVICE,… or --all"),
        (("--model", "cnn", "--method", "fedagv"), "did you mean 'fedavg'"),
        (("--model", "cnn", "--method", "fedavg", "--set", "fleet=1"), "fleet"),
        (("--model", "cnn", "--method", "fedavg", "--set", "model.depth=1"), "model.depth"),
        (("--model", "cnn", "--method", "fedavg", "--shape", "28"), "takes images"),
        (("--model", "cnn", "--method", "fedavg", "--shape", "big"), "3x32x32"),
        (("--model", "cnn", "--method", "fedavg", "--batch", "1,0"), "at least 1"),
        (("--model", "cnn", "--method", "fedavg", "--batch", "1,8"), "--on DEVICE,…"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(capsys, arguments, message):
    code, output, error = run(capsys, *arguments)
    assert code == 2
    assert message in error
    assert output == ""
    assert len(error.strip().splitlines()) == 1


def test_every_capacity_level_is_shown_with_its_own_bytes(capsys):
    arguments = ("--model", "{name: cnn, width: 4}", "--shape", "1x8x8", "--set", "methods.0.levels=[1, 0.5]")
    code, output, _ = run(capsys, *arguments, "--method", "heterofl", "--json")
    data = json.loads(output)
    assert code == 0
    # Two convolutions of 3×3, maps of 2×2 after them, a hidden layer and ten outputs.
    numbers = [10 * one + (9 * one + 1) * 2 * one + (8 * one + 1) * 4 * one + (4 * one + 1) * 10 for one in (4, 2)]
    assert [row["share"] for row in data["levels"]] == [1, 0.5]
    assert [row["upload_bytes"] for row in data["levels"]] == [4 * each for each in numbers]
    assert data["levels"][0].items() <= data.items()


@pytest.mark.full
def test_the_figures_of_the_blocks_add_up_to_the_models(capsys):
    assert main(["models", "show", "{torchvision: resnet18}", "--shape", "3x32x32", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    blocks = {each["name"]: each for each in shown["blocks"]}
    assert list(blocks) == ["conv1", "layer1", "layer2", "layer3", "layer4", "fc"]
    assert sum(each["parameters"] for each in blocks.values()) == 11_181_642
    # One 7×7 convolution of stride 2 on 32×32 pixels, from 3 to 64 channels.
    assert blocks["conv1"]["macs"] == 16 * 16 * 64 * 3 * 7 * 7
    assert blocks["fc"] == {
        "name": "fc", "output": [10], "parameters": 5130, "buffers": 0, "bytes": 4 * 5130, "macs": 5120
    }  # fmt: skip
    assert shown["whole"] is None
