"""edgefl and four other tools on the same network, data, cohort and local steps: ``python tests/benchmarks/peers.py``.

Each tool runs in a process of its own, in turn, twice: with few rounds and with many. Images a second are those of the
rounds between, so imports and start-up do not count; the peak is that of the process with all its child processes.
A tool that is not installed, or fails, is named with the reason. Its versions: ``flwr[simulation]``, ``pfl``,
``fluke-fl``, ``flgo``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from edgefl.data.batches import fetch
from edgefl.hardware import cores
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.registry import MODELS, build_model

sys.path.insert(0, str(Path(__file__).parent))
from training import CASES, federated

CASE, LR = CASES["cnn"], 0.01
FEW, MANY = 4, 64


def network() -> nn.Module:
    """The small CNN as a module of PyTorch."""
    return build_model(MODELS[CASE.model](**CASE.options), CASE.shape, 10)


@cache
def shards() -> list[tuple[Tensor, Tensor]]:
    """Images and labels of each client, as edgefl hands them to a network."""
    data = CASE.data(torch.device("cpu"))
    return [tuple(fetch(data.train, torch.from_numpy(data.shards.shard(client)))) for client in range(CASE.clients)]


def edgefl(rounds: int) -> None:
    """FedAvg by the engine ``auto``, aggregation included."""
    method = build_method("fedavg", LocalOptions(steps=CASE.steps, batch=CASE.batch, lr=LR))
    with CASE.core(CASE.data(torch.device("cpu")), "auto") as core:
        turn = federated(CASE, core, method)
        for _ in range(rounds):
            turn()


def flwr(rounds: int) -> None:
    """Flower's simulation: Ray actors with one core each, the message API."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server = ClientApp(), ServerApp()

    @client.train()
    def train(message: Any, context: Any) -> Any:
        from peers import CASE, LR, network, shards  # this file in Ray's process, which keeps the images

        torch.set_num_threads(1)
        images, labels = shards()[context.node_config["partition-id"]]
        net = network()
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(net.parameters(), lr=LR)
        for places in torch.randperm(len(labels)).split(CASE.batch):
            optimizer.zero_grad()
            cross_entropy(net(images[places]), labels[places]).backward()
            optimizer.step()
        content = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": len(labels)})}
        return Message(RecordDict(content), reply_to=message)

    @server.main()
    def main(grid: Any, context: Any) -> None:
        arrays = ArrayRecord(network().state_dict())
        FedAvg(fraction_evaluate=0.0).start(grid=grid, initial_arrays=arrays, num_rounds=rounds)

    one_core = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, num_supernodes=CASE.clients, backend_config=one_core)


def pfl(rounds: int) -> None:
    """pfl-research's simulated backend, in one process."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    net = network()
    net.loss = lambda images, labels, eval=False: cross_entropy(net(images), labels)  # type: ignore[assignment]
    net.metrics = lambda images, labels, eval=False: {}  # type: ignore[assignment]
    users = shards()
    sampler = get_user_sampler("minimize_reuse", list(range(len(users))))
    data = FederatedDataset(lambda user: PyTorchTensorDataset(tensors=users[user]), sampler)
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    local = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LR, local_batch_size=CASE.batch)
    params = NNAlgorithmParams(rounds, evaluation_frequency=10**9, train_cohort_size=CASE.cohort, val_cohort_size=0)
    FederatedAveraging().run(params, SimulatedBackend(data, None), model, local, send_metrics_to_platform=False)


def fluke(rounds: int) -> None:
    """Fluke's FedAvg, without evaluations."""
    from fluke import DDict, FlukeENV
    from fluke.algorithms.fedavg import FedAVG
    from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader

    FlukeENV().set_eval_cfg(post_fit=False, pre_fit=False, server=False, locals=False)
    loaders = [FastDataLoader(*each, num_labels=10, batch_size=CASE.batch, shuffle=True) for each in shards()]
    data = DummyDataContainer(loaders, [None] * len(loaders), None, 10)
    options = {
        "client": {
            "batch_size": CASE.batch, "local_epochs": 1, "loss": "CrossEntropyLoss",
            "optimizer": {"name": "SGD", "lr": LR}, "scheduler": {"name": "StepLR", "gamma": 1, "step_size": 1},
        },
        "server": {"weighted": True},
        "model": network(),
    }  # fmt: skip
    FedAVG(CASE.clients, DataSplitter(data, distribution="iid"), DDict(options)).run(rounds, 1.0)


def flgo(rounds: int) -> None:
    """FLGo's FedAvg, clients one after another: one core for each of its threads."""
    import flgo as tool
    from flgo.algorithm import fedavg
    from flgo.benchmark import partition
    from flgo.experiment.logger import BasicLogger
    from flgo.utils.fflow import convert_model

    users = shards()
    images, labels = (torch.cat(parts) for parts in zip(*users, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path.insert(0, folder)
        torch.save((images, labels), "data.pt")
        source = "import torch\nfrom torch.utils.data import TensorDataset\n"
        source += "train_data = TensorDataset(*torch.load('data.pt'))\ntest_data = TensorDataset(*train_data[:10])\n"
        source += "get_model = __import__('__main__').network\n"
        with open("config.py", "w", encoding="utf-8") as file:
            file.write(source)
        benchmark = tool.gen_benchmark_from_file("mine", "config.py", target_path=".")
        import_module(benchmark).visualize = None  # type: ignore[attr-defined]  # a picture that takes a minute
        task = {"benchmark": benchmark, "partitioner": partition.IIDPartitioner(num_clients=CASE.clients)}
        tool.gen_task(task, task_path="task")
        options = {
            "num_rounds": rounds, "proportion": 1.0, "num_epochs": 1, "batch_size": CASE.batch, "learning_rate": LR,
            "learning_rate_decay": 1.0, "train_holdout": 0.0, "eval_interval": -1, "no_log_console": True, "gpu": [],
        }  # fmt: skip
        tool.init("task", fedavg, options, model=convert_model(network), Logger=BasicLogger).run()


TOOLS: dict[str, tuple[Callable[[int], None], str]] = {
    "edgefl": (edgefl, "edgefl"),
    "flwr": (flwr, "flwr"),
    "pfl": (pfl, "pfl"),
    "fluke": (fluke, "fluke-fl"),
    "flgo": (flgo, "flgo"),
}


def timed(name: str, rounds: int, limit: float) -> tuple[float, int]:
    """Seconds and peak bytes (proportional set size) of a tool's process with its child processes."""
    import psutil  # of no extra: python -m pip install psutil

    words = [sys.executable, __file__, "--one", name, str(rounds)]
    start, peak, ended = time.perf_counter(), 0, threading.Event()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:

        def watch() -> None:
            nonlocal peak
            while not ended.wait(0.2):
                try:
                    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
                    peak = max(peak, sum(each.memory_full_info().pss for each in family))
                except psutil.Error:
                    continue  # one of them has ended

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            raise RuntimeError(f"takes more than {limit:g} s") from None
        finally:
            ended.set()
            watcher.join()
    if process.returncode:
        errors = [line for line in said.splitlines() if "Error" in line]
        raise RuntimeError(errors[-1].strip() if errors else f"exit code {process.returncode}")
    return time.perf_counter() - start, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", choices=TOOLS, action="append", help="only this tool; repeatable")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--limit", type=float, default=120, help="seconds of a process")
    parser.add_argument("--one", nargs=2, metavar=("TOOL", "ROUNDS"), help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.one:
        TOOLS[given.one[0]][0](int(given.one[1]))
        return
    rates: dict[str, list[float]] = {name: [] for name in given.tool or TOOLS}
    peaks, failed = dict.fromkeys(rates, 0), dict[str, str]()
    for _ in range(given.turns):
        for name in [name for name in rates if name not in failed]:
            try:
                (short, _), (long, peak) = (timed(name, rounds, given.limit) for rounds in (FEW, MANY))
            except RuntimeError as error:
                failed[name] = str(error)
                continue
            rates[name].append(CASE.images * (MANY - FEW) / (long - short))
            peaks[name] = max(peaks[name], peak)
    rows = []
    for name, found in rates.items():
        try:
            number = version(TOOLS[name][1])
        except PackageNotFoundError:
            number = "(not installed as a package)"
        row = {"tool": name, "version": number, "images_per_second": median(found) if found else None}
        rows.append({**row, "peak_bytes": peaks[name], "failed": failed.get(name)})
    if given.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"cnn: cohort {CASE.cohort} x batch {CASE.batch} x {CASE.steps} steps, {cores()} cores, {torch.__version__}")
    for row in rows:
        rate = row["failed"] or f"{row['images_per_second']:,.0f} images/s, {row['peak_bytes'] / 2**20:,.0f} MiB"
        print(f"{row['tool']} {row['version']}: {rate}")


if __name__ == "__main__":
    main()
