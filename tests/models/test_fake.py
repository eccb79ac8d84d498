"""Models without numbers: their steps cost the same, and nothing as large as a weight is made."""

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

from edgefl.cost.law import CostModel
from edgefl.cost.method_cost import method_cost
from edgefl.experiment import run
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.fake import SMALL, numberless
from edgefl.models.ordinary import OrdinaryModel
from edgefl.models.registry import build_model
from edgefl.planning.planning import plan
from edgefl.record.summary import read_run
from edgefl.rerun.verify import verify
from edgefl.scenario.rehearsal import rehearse


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(256, 512), nn.BatchNorm1d(512), nn.Linear(512, 512)
        nn.init.trunc_normal_(self.second.weight.data.mul_(2))
        self.head = nn.Linear(512, 10)
        self.first.to(torch.bfloat16)  # trained as float32
        self.register_buffer("table", torch.arange(512.0) / 512, persistent=False)
        self.seen = None

    def forward(self, inputs):
        self.seen = self.norm(self.first(inputs)).relu()
        return self.head(self.second(self.seen) * self.table)


class Recurrent(nn.Module):
    """Its layer keeps the tensors of its last call in a list."""

    def __init__(self):
        super().__init__()
        self.first, self.layer, self.head = nn.Linear(256, 256), nn.LSTM(16, 192, batch_first=True), nn.Linear(192, 10)

    def forward(self, inputs):
        return self.head(self.layer(self.first(inputs).view(-1, 16, 16))[0][:, -1])


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(2000, 64), nn.Linear(64, 10)

    def forward(self, inputs):
        return self.head(self.embedding(inputs).mean(1))


class Reading(Net):
    """Its constructor reads numbers of a large tensor, as one that scales its first weights does."""

    def __init__(self):
        super().__init__()
        self.scale = float(self.second.weight.std())


class Spec(OrdinaryModel):
    kind: type = Net

    def module(self, sample_shape, classes):
        return self.kind()


def net(*, numbers, **options):
    return build_model(Spec(**options), (256,), 10, numbers=numbers)


def made(model):
    """The tensors of a model that have numbers."""
    return [each for each in [*model.parameters(), *model.buffers()] if not each.is_meta]


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedmlb", "moon"])
@pytest.mark.parametrize(
    "options",
    [{}, {"trainable": ["head", "norm"]}, {"kind": Recurrent}, {"kind": Tokens, "trainable": ["head"]}],
    ids=["all", "head", "recurrent", "tokens"],
)
def test_a_step_without_numbers_costs_the_same(name, options):
    method = build_method(name, LocalOptions())
    models = [net(numbers=each, **options) for each in (True, False)]
    with_numbers, without = (method_cost(CostModel(model), method, 8) for model in models)
    assert without == with_numbers
    assert max(each.numel() for each in made(models[1])) <= SMALL
    assert not models[1].numbers
    assert not numberless()


def test_a_constructor_that_reads_its_weights_gets_them():
    model = net(numbers=False, kind=Reading)
    assert model.numbers
    assert model.module.scale == pytest.approx(0.88, rel=0.01)  # of a normal distribution within two of its deviations
    assert model.layout.parameter_count == net(numbers=False).layout.parameter_count


def test_what_does_not_train_makes_no_weights(small, tmp_path, monkeypatch):
    def refused(*_):
        raise AssertionError("weights are made")

    monkeypatch.setattr("edgefl.models.registry.initial_vector", refused)
    scenario = small()
    rehearse(scenario, trains=False)
    planned = plan(scenario, rounds=4).methods[0]
    path = run(scenario, out=tmp_path / "run", train=False)
    assert verify(path) == []
    (entry,) = read_run(path)[1].methods["fedavg"]
    assert entry.rounds * planned.seconds == pytest.approx(entry.seconds)


BILLION = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
BILLION |= {"intermediate_size": 8192, "vocab_size": 128256, "tie_word_embeddings": True, "head_dim": 64}
COST = """
import resource, sys
from edgefl.cli.entry import main
sys.argv = ["edgefl", *sys.argv[1:]]
try:
    main()
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


@pytest.mark.full
@pytest.mark.extras
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_billion_parameters_are_counted_in_little_memory(tmp_path, dtype):
    pytest.importorskip("transformers", reason="transformers is not installed: pip install -e '.[transformers]'")
    pytest.importorskip("peft", reason="peft is not installed: pip install -e '.[peft]'")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "llama", "dtype": dtype, **BILLION}))
    model = f"{{transformers: llama, config: {config}, lora: {{targets: [q_proj, v_proj], rank: 8}}}}"
    options = ["--model", model, "--method", "fedavg", "--task", "language_model", "--shape", "64"]
    options += ["--classes", "128256", "--batch", "2", "--json"]
    ran = subprocess.run([sys.executable, "-c", COST, "cost", *options], capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    weights = 16 * (2 * 2048**2 + 2 * 2048 * 512 + 3 * 2048 * 8192) + 128256 * 2048
    adapters = 16 * 8 * (2048 + 2048 + 2048 + 512)
    assert found["layer_macs"] == 2 * 64 * (weights + adapters)
    assert found["parameters"] == weights + adapters + 33 * 2048  # the scales of norms; the head is the embedding
    assert found["upload_bytes"] == 4 * adapters
    assert int(ran.stderr.split()[-1]) < 2 << 20  # KiB; the weights alone would be 4.6 GiB
