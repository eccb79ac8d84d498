"""The same app in Flower's own simulation: equal accuracies, and how long both take."""

import importlib.util
import json
import os
import subprocess
import sys
import time

import pytest

from .runs import app_run, events_of, made_app

pytestmark = [
    pytest.mark.release,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("flwr", "ray")), reason="needs flwr and ray"
    ),
]

ROUNDS = 30

# Both simulations seed in ways of their own, so the client seeds each of its calls itself.
CLIENT = """
from torch.nn.functional import cross_entropy
images, labels = digits()
torch.manual_seed(1000 * message.content["config"]["server-round"] + partition)
net = torch.nn.Linear(64, 10)
net.load_state_dict(message.content["arrays"].to_torch_state_dict())
mine = torch.arange(partition, 1500, context.node_config["num-partitions"])
optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
for _ in range(20):
    batch = mine[torch.randint(len(mine), (32,))]
    optimizer.zero_grad()
    cross_entropy(net(images[batch]), labels[batch]).backward()
    optimizer.step()
content = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": len(mine)})}
return Message(RecordDict(content), reply_to=message)
"""

SERVER = f"""
from flwr.serverapp.strategy import FedAvg
net = torch.nn.Linear(64, 10)
torch.nn.init.zeros_(net.weight)
torch.nn.init.zeros_(net.bias)
def evaluate(server_round, arrays):
    images, labels = digits()
    net.load_state_dict(arrays.to_torch_state_dict())
    with torch.no_grad():
        right = net(images[1500:]).argmax(1) == labels[1500:]
    return MetricRecord({{"accuracy": right.float().mean().item()}})
result = FedAvg(fraction_evaluate=0.0).start(
    grid=grid, initial_arrays=ArrayRecord(net.state_dict()), num_rounds={ROUNDS}, evaluate_fn=evaluate
)
import os
if "ACCURACIES" in os.environ:
    with open(os.environ["ACCURACIES"], "w") as file:
        json.dump([each["accuracy"] for _, each in sorted(result.evaluate_metrics_serverapp.items())], file)
"""

DATA = """

from functools import cache

@cache
def digits():
    from sklearn.datasets import load_digits
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
"""

FLOWERS_OWN = """
import sys, time
sys.path.insert(0, sys.argv[1])
import made
from flwr.simulation import run_simulation
began = time.perf_counter()
run_simulation(made.server, made.client, num_supernodes=4, backend_config={"client_resources": {"num_cpus": 1}})
print(time.perf_counter() - began)
"""


def test_an_app_has_the_accuracies_that_flowers_own_simulation_gives(tmp_path, capsys):
    flower = {**made_app(tmp_path / "app", SERVER, CLIENT), "seconds": None}
    file = tmp_path / "app" / "made.py"
    file.write_text(file.read_text() + DATA)
    began = time.perf_counter()
    paths = app_run(tmp_path / "run", flower=flower)
    seconds = time.perf_counter() - began
    found = [row.value for row in events_of(paths, "flower", 0, "evaluation")]

    accuracies = tmp_path / "accuracies"
    environment = {**os.environ, "ACCURACIES": str(accuracies), "PYTHONPATH": str(tmp_path / "app")}
    done = subprocess.run(
        [sys.executable, "-c", FLOWERS_OWN, str(tmp_path / "app")],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    expected = json.loads(accuracies.read_text())[1:]  # the first one is of the initial model
    theirs = float(done.stdout.split()[-1])
    with capsys.disabled():
        print(f"\nrounds per minute: edgefl {60 * ROUNDS / seconds:.0f}, flwr's simulation {60 * ROUNDS / theirs:.0f}")
    # The order of replies may differ, and with it the rounding of their mean: at most one of the 297 images.
    assert len(found) == ROUNDS
    assert found == pytest.approx(expected, abs=1.01 / 297)
    assert found[-1] > 0.85
    same = sum(one == other for one, other in zip(found, expected, strict=True))
    with capsys.disabled():
        print(f"equal accuracies: {same} of {ROUNDS}, the last one {found[-1]:.4f}")
    assert same >= ROUNDS - 2
