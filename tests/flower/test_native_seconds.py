"""An app that does what edgefl's fedavg does takes the virtual seconds of fedavg."""

import json
import textwrap
from collections import Counter

import pytest

from edgefl.experiment import run
from edgefl.record import RunPaths
from edgefl.scenario.loading import check

from .runs import DOWN, LATENCY, UP, app_run, events_of, made_app, needs_flwr, summary_of, world

pytestmark = needs_flwr

PARAMETERS = 32 * (3 * 25 + 1) + 64 * (32 * 25 + 1) + 256 * (64 * 64 + 1) + 10 * (256 + 1)

NET = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(64 * 8 * 8, 256), nn.ReLU(), nn.Linear(256, 10),
        )
"""

SERVER = """
from flwr.serverapp.strategy import FedAvg
from net import Net
FedAvg(fraction_evaluate=0.0).start(grid=grid, initial_arrays=ArrayRecord(Net().state_dict()), num_rounds=1)
"""

CLIENT = """
from net import Net
net = Net()
net.load_state_dict(message.content["arrays"].to_torch_state_dict())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(10):
    images, labels = torch.rand(32, 3, 32, 32), torch.randint(10, (32,))
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(images), labels).backward()
    optimizer.step()
metrics = MetricRecord({"num-examples": 320})
return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)
"""


LABELS = ("flower", "fedavg")


def totals(step, times):
    """FLOPs and bytes by operator."""
    found = {}
    for name, flops, bytes, count, *_ in step["operators"]:
        found.setdefault(name, Counter()).update(flops=flops * count * times, bytes=bytes * count * times)
    return found


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The run directories of the app and of fedavg: the same module, 10 steps of 32 images, one round."""
    folder = tmp_path_factory.mktemp("both")
    flower = made_app(folder / "app", SERVER, CLIENT)
    (folder / "app" / "net.py").write_text(textwrap.dedent(NET))
    app = app_run(folder / "flower", flower={"app": flower["app"]}, data={"clients": 2})
    own = {
        "data": {
            "name": "synthetic", "shape": [3, 32, 32], "classes": 10, "train": 640, "test": 10,
            "clients": 2, "partition": {"kind": "iid"},
        },
        "model": {"python": f"{folder}/app/net.py:Net"},
        "training": {"rounds": 1, "cohort": 2, "local": {"steps": 10, "batch": 32, "lr": 0.1}},
        "methods": ["fedavg"],
        "stop": "rounds",
    }  # fmt: skip
    native = world(**own)
    del native["flower"]
    return app, RunPaths(run(check(native), out=folder / "native"))


def test_a_round_of_an_app_takes_the_seconds_of_a_round_of_fedavg_within_one_per_cent(both):
    app, native = both
    seconds = summary_of(app)["seconds"]
    assert seconds == pytest.approx(summary_of(native, "fedavg")["seconds"], rel=0.01)
    # The transfers of a model of float32 numbers, and no less.
    assert seconds > 2 * LATENCY + 32 * PARAMETERS / DOWN + 32 * PARAMETERS / UP


def test_the_network_executes_the_same_operators_and_only_the_update_differs(both):
    (of_app,), (of_native,) = (
        json.loads(paths.costs.read_text())[name] for paths, name in zip(both, LABELS, strict=True)
    )
    # The work of an app is the whole call, that of fedavg one of its 10 steps.
    counted, step = totals(of_app, 1), totals(of_native, 10)
    own = {"uniform_", "rand", "randint", "copy_", "add_"}  # first values, copies, the data, and the update
    assert counted.keys() - step.keys() == own
    assert step.keys() - counted.keys() == {"cat", "clone", "sub_"}  # copies, and the update
    for name in counted.keys() & step.keys():
        assert counted[name] == step[name]


def test_computing_differs_by_the_copies_around_the_update_only(both):
    app, native = (
        [row.seconds for row in events_of(*each, 0, "compute_end")] for each in zip(both, LABELS, strict=True)
    )
    assert len(app) == len(native) == 2
    assert app == pytest.approx(native, rel=0.05)
