"""A client's last batch of one sample, with which PyTorch's batch norm cannot train, is found before training."""

import pytest

from edgefl.cost.measure import measure
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.registry import MODELS, build_model
from edgefl.planning.planning import plan
from edgefl.scenario import rehearse

NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self, pixels=False):
        super().__init__()
        self.norm = nn.BatchNorm2d(1) if pixels else nn.BatchNorm1d(64)
        self.head, self.pixels = nn.Linear(64, 4), pixels

    def forward(self, images):
        return self.head(self.norm(images).flatten(1) if self.pixels else self.norm(images.flatten(1)))
"""


@pytest.fixture
def normed(small, tmp_path):
    """Eight clients of 41 samples, and a model with batch norm of its features or of its pixels."""
    (tmp_path / "net.py").write_text(NET)

    def make(*, pixels=False, **changes):
        model = {"python": f"{tmp_path / 'net.py'}:Net", "args": {"pixels": pixels}}
        data = {"data.train": 328, "data.partition": {"kind": "iid"}, "training.local.batch": 20}
        return small(model=model, **{**data, **changes})

    return make


MESSAGE = "client 0 and 7 others with 41 samples in batches of 20 would train one alone; set drop_last: true"


@pytest.mark.parametrize("train", [True, False])
def test_a_run_says_which_client_and_what_to_change(normed, tmp_path, train):
    with pytest.raises(UserError, match=MESSAGE) as error:
        run(normed(), out=tmp_path / "run", train=train)
    assert error.value.field == "training.local"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("check", [rehearse, plan])
def test_validation_and_planning_say_the_same(normed, check):
    with pytest.raises(UserError, match=MESSAGE):
        check(normed())


@pytest.mark.parametrize(
    "changes",
    [
        {"training.local.batch": 21},
        {"training.local.epochs": None, "training.local.steps": 2},
        {"pixels": True},
        {"methods": [{"method": "fedavg", "local": {"batch": 16}}]},
        {"methods": ["central"]},  # 328 samples
    ],
    ids=str,
)
def test_what_can_be_trained_is_accepted(normed, changes):
    rehearse(normed(**changes))


def test_a_run_that_leaves_out_the_last_batch_trains(normed, tmp_path):
    scenario = normed(**{"training.local.drop_last": True, "training.rounds": 1})
    assert (run(scenario, out=tmp_path / "run") / "summary.json").exists()


def test_the_cost_of_a_step_of_one_sample_is_refused_in_one_sentence(normed):
    model = build_model(normed().model.spec, (1, 8, 8), 4)
    with pytest.raises(UserError, match="batch norm needs a batch of two or more samples to train, found 1"):
        measure(model, build_method("fedavg", LocalOptions()), model.depth, 1)
    own = build_model(MODELS["cnn"](width=2, norm="batch"), (1, 8, 8), 4)
    assert measure(own, build_method("fedavg", LocalOptions()), own.depth, 1).training_flops > 0
