"""Ordinary modules that read integers: they are called with the type of the data, and refused where it does not fit."""

import json

import pytest
import torch
from torch import nn

from edgefl.cli.entry import main
from edgefl.cost import DataDependentError
from edgefl.cost.measure import block_figures, measure
from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.ordinary import OrdinaryModel
from edgefl.models.registry import build_model
from edgefl.scenario.rehearsal import rehearse

NET = """
from torch import nn


class Lstm(nn.Module):
    def __init__(self, tokens=96, classes=96, width=16):
        super().__init__()
        self.embedding, self.head = nn.Embedding(tokens, 8), nn.Linear(width, classes)
        self.lstm = nn.LSTM(8, width, batch_first=True)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0][:, -1])


class Bag(nn.Module):
    def __init__(self, tokens=96, classes=96):
        super().__init__()
        self.embedding, self.head = nn.Embedding(tokens, 8), nn.Linear(8, classes)

    def forward(self, tokens):
        return self.head(self.embedding(tokens).mean(1))
"""


class Both(nn.Module):
    """Takes numbers and integers."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, inputs):
        return self.head(inputs.float())


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.head = nn.Embedding(7, 5), nn.Embedding(4, 5), nn.Linear(5, 3)

    def forward(self, tokens):
        return self.head((self.words(tokens) + self.places(torch.arange(4))).mean(1))


def built(make, shape=(4,), **options):
    class Made(OrdinaryModel):
        def module(self, sample_shape, classes):
            return make()

    return build_model(Made(), shape, 3, **options)


def test_a_module_is_called_with_the_type_of_the_data():
    assert built(Both, tokens=True).input_type == torch.int64
    assert built(Both, tokens=False).input_type == torch.float32
    assert built(Embedded, tokens=True).tokens == 7  # not the four of the positions, which it makes itself
    with pytest.raises(UserError, match=r"cannot be called with a batch of shape \(2, 4\): .*indices"):
        built(Embedded, tokens=False)
    with pytest.raises(UserError, match=r"cannot be called with tokens of shape \(2, 4\): .*(dtype|type)"):
        built(lambda: nn.Linear(4, 3), tokens=True)


def test_where_the_data_are_unknown_the_type_that_fits_is_taken():
    assert built(Both).input_type == torch.float32
    model = built(Embedded)
    assert (model.input_type, model.tokens) == (torch.int64, 7)
    assert [figures.output for figures in block_figures(model)][-1] == (3,)
    with pytest.raises(UserError, match=r"cannot be called with tokens of shape \(2, 5\): .*size"):
        built(Embedded, (5,))


@pytest.mark.xfail(
    torch.__version__.startswith("2.6."),
    reason="PyTorch 2.6 has no gradient of an embedding without data for indices that the module makes itself",
    raises=DataDependentError,
)
def test_a_module_that_makes_its_own_positions_is_counted():
    model = built(Embedded)
    assert measure(model, build_method("fedavg", LocalOptions()), model.depth, 2).layer_macs == 2 * 5 * 3


@pytest.fixture
def play(small, tmp_path):
    folder = tmp_path / "data" / "tinyshakespeare"
    folder.mkdir(parents=True)
    speeches = [f"S{number}:\n" + ("to be or not to be " * (6 + number)) for number in range(4)]
    (folder / "input.txt").write_text("\n\n".join(speeches), encoding="utf-8")
    (tmp_path / "net.py").write_text(NET)

    def made(model, **changes):
        data = {"name": "shakespeare", "root": str(tmp_path / "data"), "clients": 4, "window": 12, "stride": 1}
        return small(data=data, model=model, **{"training.local.lr": 0.2, **changes})

    return made


def test_tokens_beyond_the_embedding_and_models_of_numbers_are_refused(play, tmp_path, capsys):
    with pytest.raises(UserError, match=r"data: expected integers from 0 to 9, the tokens of the model, found \d+ in"):
        rehearse(play({"python": f"{tmp_path / 'net.py'}:Bag", "args": {"tokens": 10}}))
    with pytest.raises(UserError, match="model: "):
        rehearse(play({"name": "cnn"}))
    model = f"{{python: {tmp_path / 'net.py'}:Lstm}}"
    assert main(["models", "show", model, "--shape", "20", "--classes", "96", "--json"]) == 0
    blocks = json.loads(capsys.readouterr().out)["blocks"]
    assert [each["name"] for each in blocks] == ["embedding", "lstm"]
