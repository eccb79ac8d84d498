"""Five networks of about equal FLOPs, each of another kind of layer: does the profile of this machine order them?

``edgefl profile measure -o PROFILE --threads 1 && python tests/benchmarks/order_of_networks.py PROFILE``

The exit code is 1 if two whose processor times differ by more than 25 % are predicted in the wrong order.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgefl.cost.measure import measure
from edgefl.fleet import read_profile, step_seconds
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import local_step
from edgefl.methods.parts.objective import Batch, Context
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.ordinary import OrdinaryModel
from edgefl.models.registry import build_model, initial_vector
from edgefl.torch_settings import neutral_torch

ROUNDS, APART = 40, 1.25
SERIES, IMAGES = (40, 12), (3, 32, 32)
BATCHES = (16, 64)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], width: int) -> None:
        super().__init__()
        self.layer, self.head = kind(12, width, batch_first=True), nn.Linear(width, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.layer(inputs)[0][:, -1])


class Attention(nn.Module):
    """One layer of a vision transformer on 64 patches, with four heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width)
        self.qkv, self.out, self.head = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 10)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        places = self.patches(inputs).flatten(2).transpose(1, 2)
        batch, count, width = places.shape
        parts = self.qkv(self.norm(places)).view(batch, count, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(batch, count, width)
        places = places + self.out(seen)
        return self.head((places + self.down(F.gelu(self.up(places)))).mean(1))


def convolutions(width: int) -> nn.Module:
    first, second = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
    return nn.Sequential(
        first, nn.ReLU(), second, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)
    )


def perceptron(width: int) -> nn.Module:
    layers = (nn.Linear(480, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    return nn.Sequential(nn.Flatten(), *layers)


NETWORKS = {
    "LSTM": (lambda: Recurrent(nn.LSTM, 96), SERIES),
    "GRU": (lambda: Recurrent(nn.GRU, 112), SERIES),
    "convolution": (lambda: convolutions(13), IMAGES),
    "attention": (lambda: Attention(40), IMAGES),
    "MLP": (lambda: perceptron(1150), SERIES),
}


def real_step(model: BlockModel, method: Method, batch: int) -> Callable[[], object]:
    parameters, buffers = (part.clone() for part in model.layout.split(initial_vector(model, 0)))
    images = Batch(torch.randn(batch, *model.sample_shape), torch.arange(batch) % 10)
    context = Context(model, {}, {}, {}, model.depth)
    # A learning rate of 0 keeps the numbers constant.
    return lambda: local_step(
        method.objective, method.rule, parameters, buffers, images, context, {}, method.local, 0.0
    )


def timed(runs: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The median processor time of each step, taken in turn."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            run()  # its data are in the caches again
            begun = time.process_time()
            run()
            found[name].append(time.process_time() - begun)
    return {name: median(each) for name, each in found.items()}


def main(profile: Path) -> int:
    device, wrong = read_profile(profile), 0
    torch.set_num_threads(1)
    for batch in BATCHES:
        method = build_method("fedavg", LocalOptions(batch=batch, weight_decay=0, clip_norm=None))
        runs, costs = {}, {}
        for name, (make, shape) in NETWORKS.items():
            made = type("Made", (OrdinaryModel,), {"module": lambda *_, make=make: make()})
            model = build_model(made(), shape, 10)
            runs[name] = real_step(model, method, batch)
            costs[name] = measure(model, method, model.depth, batch)
        seconds = timed(runs)
        predicted = {name: step_seconds(device, cost.operators) for name, cost in costs.items()}
        for name, cost in costs.items():
            print(
                f"batch {batch}, {name}: {cost.training_flops / 1e6:.0f} MFLOP, {seconds[name] * 1e3:.1f} ms, "
                f"predicted {predicted[name] * 1e3:.1f} ({predicted[name] / seconds[name]:.2f})"
            )
        for one, other in combinations(NETWORKS, 2):
            ratio = seconds[one] / seconds[other]
            if max(ratio, 1 / ratio) > APART and (ratio > 1) != (predicted[one] > predicted[other]):
                print(f"batch {batch}: {one} and {other} are predicted in the wrong order")
                wrong += 1
    return int(wrong > 0)


if __name__ == "__main__":
    with neutral_torch():
        sys.exit(main(Path(sys.argv[1])))
