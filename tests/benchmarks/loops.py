"""Three training loops with a ``DataLoader``, as users write them, and what the profile of this machine predicts.

``edgefl profile measure -o PROFILE --threads N && EDGEFL_DATA=… python tests/benchmarks/loops.py PROFILE N``
"""

from __future__ import annotations

import io
import sys
import time
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision import datasets, transforms

from edgefl.cost.measure import measure
from edgefl.data.location import data_root
from edgefl.fleet import InputPipeline, load_profile, step_seconds
from edgefl.models.registry import build_model
from edgefl.profiling.reading import reading_seconds
from edgefl.scenario.named_step import read_step

STEPS, ROUNDS = 10, 10
"""Steps timed together, of which the shortest mean counts, and how often each loop has its turn."""


def convolution(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class Small(nn.Sequential):
    """For MNIST."""

    def __init__(self) -> None:
        first = nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
        second = nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
        super().__init__(*first, *second, nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10))


class Deep(nn.Sequential):
    """For CIFAR-10."""

    def __init__(self) -> None:
        stages = [convolution(3, 32), *(convolution(32, 32) for _ in range(2)), nn.MaxPool2d(2)]
        stages += [
            convolution(32, 64),
            convolution(64, 64),
            nn.MaxPool2d(2),
            convolution(64, 128),
            convolution(128, 128),
        ]
        super().__init__(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


class Table(nn.Sequential):
    """For forty numbers."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(40, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


class Pictures(Dataset[Any]):
    """The JPEG copy of CIFAR-10."""

    def __init__(self) -> None:
        rows = pq.read_table(data_root() / "cifar10-jpeg" / "test-00000-of-00001.parquet").to_pylist()
        self.rows = [(row["image"]["bytes"], row["label"]) for row in rows]
        flips = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
        self.transform = transforms.Compose(
            [*flips, transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.25] * 3)]
        )

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image, label = self.rows[index]
        return self.transform(Image.open(io.BytesIO(image)).convert("RGB")), label


def sets() -> dict[str, tuple[Any, type[nn.Module], tuple[int, ...], int]]:
    """By name: samples, the network, a sample's shape and the batch."""
    grey = transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.1307], [0.3081])])
    numbers = TensorDataset(torch.randn(20_000, 40), torch.randint(10, (20_000,)))
    return {
        "MNIST, transformed": (datasets.MNIST(data_root(), transform=grey), Small, (1, 28, 28), 32),
        "CIFAR-10, crops and flips": (Pictures(), Deep, (3, 32, 32), 32),
        "table of 40 numbers": (numbers, Table, (40,), 64),
    }


class Loop:
    """Plain PyTorch: SGD with momentum."""

    def __init__(self, samples: Any, network: type[nn.Module], batch: int, workers: int) -> None:
        loader = DataLoader(samples, batch, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
        self.loader, self.batches = loader, chain.from_iterable(repeat(loader))
        self.model = network().to(memory_format=torch.channels_last)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def seconds(self) -> float:
        """Of a step, the mean of many, the first of which is not timed."""
        alone = torch.get_num_threads() == 1 and not self.loader.num_workers
        began, clock = 0.0, time.process_time if alone else time.perf_counter
        for number, (inputs, labels) in enumerate(islice(self.batches, STEPS + 1)):
            self.optimiser.zero_grad()
            nn.functional.cross_entropy(self.model(inputs), labels).backward()
            self.optimiser.step()
            if not number:
                began = clock()
        return (clock() - began) / STEPS


def main(profile: str, threads: str) -> None:
    torch.set_num_threads(int(threads))
    device = load_profile(profile)
    loops, found = {}, {}
    for name, (samples, network, shape, batch) in sets().items():
        for workers in (0, 2):
            loops[name, workers] = Loop(samples, network, batch, workers)
        spec = f"{{python: '{Path(__file__).resolve()}:{network.__name__}'}}"
        spec, (method,) = read_step(spec, "fedavg", ["training.local.momentum=0.9"])
        model = build_model(spec, shape, 10)
        step = step_seconds(device, measure(model, method, model.depth, batch).operators)
        reading = reading_seconds(loops[name, 0].loader, 2)
        found[name] = step, reading, batch
    best: dict[tuple[str, int], float] = {}
    for _ in range(ROUNDS):
        for key, loop in loops.items():
            best[key] = min(best.get(key, 1e9), loop.seconds())
    for (name, workers), seconds in best.items():
        step, reading, batch = found[name]
        pipeline = InputPipeline(seconds=reading, workers=workers, core=device.core_speed)
        predicted = step + pipeline.waiting(device, step, batch)
        print(
            f"{name}, {workers} workers: {1e3 * seconds:.2f} ms a step, predicted {1e3 * predicted:.2f} ms "
            f"({predicted / seconds - 1:+.0%}); alone {1e3 * step:.2f} ms, reading {1e3 * reading * batch:.2f} ms"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
