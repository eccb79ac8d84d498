"""What is learned, how it is spread over the clients, and by which model."""

from __future__ import annotations

from typing import Any

from .files import FOLDER
from .observation import trained, world
from .probe import EASY, Probe, both, differs, less, more, probes, same

PLAY = {
    "data": {"name": "shakespeare", "root": str(FOLDER / "plays"), "clients": 8, "window": 8},
    "model": {"name": "char_transformer", "width": 8, "heads": 2, "layers": 1},
}
MIXED_PLAY = {**PLAY, "data.partition": {"kind": "iid"}}
ARRAYS = {
    "data": {"name": "arrays", "train": str(FOLDER / "samples.npz"), "clients": 8},
    "model": {"name": "mlp", "widths": [8]},
}
MACHINES = {
    "data": {"name": "vibration", "machines": 8, "windows": 20, "clients": 8},
    "model": {"name": "cnn1d", "width": 2},
}


def downloaded(name: str) -> dict[str, Any]:
    """A data set that is counted, not read."""
    return {"data": {"name": name, "images": 1600, "clients": 8}}


ONE_STEP = {
    "training.rounds": 1, "training.cohort": 1, "training.local": {"steps": 1, "batch": 2},
    "data": {"name": "synthetic", "shape": [3, 16, 16], "classes": 4, "train": 16, "test": 8, "clients": 8},
}  # fmt: skip
"""Enough for a large network to show that it is another one."""

SHARDS = {"data.partition": {"kind": "shards", "s": 2}, "data.classes": 8}
OWN = {"model": {"python": str(FOLDER / "net.py:net"), "args": {"width": 8}}}
VISION = {"model": {"torchvision": "mobilenet_v2"}}


PROBES: list[Probe] = probes(world, [
    ("data<cifar10>.name", {}, downloaded("cifar10"), differs),
    ("data.clients", {}, {"data.clients": 4, "fleet.0.count": 2, "fleet.1.count": 2},
     both(more("flops", "largest"), same("participants"))),
    ("data.images", ARRAYS, {"data.images": 48}, less("flops", "largest")),
    ("data.validation", {"evaluation.split": "validation"}, {"data.validation": 0.5}, less("flops", "largest")),
    # What data sets have of their own.
    ("data<emnist>.variant", downloaded("emnist"), {"data.variant": "digits"}, less("bytes")),
    ("data.classes", downloaded("tiny_imagenet"), {"data.classes": 100}, less("bytes")),
    ("data<shakespeare>.window", {**MIXED_PLAY, "data.images": 80}, {"data.window": 16}, more("flops")),
    ("data<shakespeare>.vocabulary", MIXED_PLAY, {"data.vocabulary": 500}, more("flops", "bytes")),
    ("data<shakespeare>.train_share", MIXED_PLAY, {"data.train_share": 0.4}, less("flops", "largest")),
    ("data<shakespeare>.least", MIXED_PLAY, {"data.least": 12}, less("flops", "largest")),
    ("data<synthetic>.train", {}, {"data.train": 640}, more("flops", "largest")),
    ("data<synthetic>.shape", {}, {"data.shape": [1, 12, 12]}, more("flops", "bytes")),
    ("data.classes", {}, {"data.classes": 12}, more("bytes")),
    # Which model.
    ("model<cnn>.width", {}, {"model.width": 8}, more("bytes", "flops")),
    ("model<cnn>.kernel", {}, {"model.kernel": 5}, more("bytes", "flops")),
    ("model<cnn>.norm", {}, {"model.norm": "batch"}, more("bytes", "flops")),
    ("model<mlp>.widths[]", ARRAYS, {"model.widths": [8, 8]}, more("bytes", "flops")),
    ("model<cnn1d>.width", MACHINES, {"model.width": 4}, more("bytes", "flops")),
    ("model<cnn1d>.kernel", MACHINES, {"model.kernel": 15}, more("bytes", "flops")),
    ("model<python>.python", {**ONE_STEP, **OWN}, {"model.python": str(FOLDER / "net.py:wide")},
     more("bytes", "flops")),
    ("model<torchvision>.torchvision", {**ONE_STEP, **VISION}, {"model.torchvision": "mobilenet_v3_small"},
     less("flops")),
    ("model<torchvision>.args", {**ONE_STEP, **VISION}, {"model.args": {"width_mult": 0.5}}, less("bytes", "flops")),
]) + probes(trained, [
    ("data.root", PLAY, {"data.root": str(FOLDER / "more")}, differs),
    ("data.test", {}, {"data.test": "partitioned"},
     both(same("moved"), lambda _, after: "worst_tenth" in after.left[0])),
    ("data.partition<shards>.s", SHARDS, {"data.partition.s": 4}, more("held")),
    ("data<synthetic>.test_images", {}, {"data.test_images": 40}, both(differs, same("moved"))),
    ("data<synthetic>.signal", EASY, {"data.signal": 0.1}, both(more("loss"), less("accuracy"))),
    ("data<synthetic>.images_seed", {}, {"data.images_seed": 1}, differs),
    ("model.buffers", {"model.norm": "batch"}, {"model.buffers": "local"}, both(less("bytes"), same("flops"))),
    ("model.local[]", {}, {"model.local": ["conv1"]}, both(less("bytes"), same("flops"))),
    ("model<cnn>.groups", {"model.norm": "group", "model.groups": 1}, {"model.groups": 2},
     both(differs, same("flops"))),
    ("model.weights", {}, {"model.weights": str(FOLDER / "weights.safetensors")}, both(differs, same("bytes"))),
])  # fmt: skip
