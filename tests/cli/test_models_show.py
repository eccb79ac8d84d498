"""``edgefl models show`` prints the blocks of any model."""

import json

import pytest

from edgefl.cli.entry import main


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


def test_the_table_has_the_blocks_and_their_sums(capsys):
    assert main(["models", "show", "cnn", "--shape", "1x28x28"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line[:1].isalpha()]
    assert [row[0] for row in rows[:6]] == ["block", "conv1", "conv2", "fc1", "fc2", "all"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show"], "expected a model"),
        (["show", "{torchvision: resnet}"], "'resnet'"),
        (["show", "{torchvision"], "--model"),
        (["show", "cnn", "--shape", "3"], "model 'cnn' takes images"),
    ],
)
def test_wrong_words_end_with_one_message(words, message, capsys):
    assert main(["models", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
