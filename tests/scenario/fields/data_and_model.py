"""What is learned, how it is spread over the clients, and by which model."""

from __future__ import annotations

from typing import Any

from .files import FOLDER
from .observation import trained, world
from .probe import EASY, NEARER, Probe, both, differs, less, more, probes, same

PICTURES = {"data": {"name": "parquet", "root": str(FOLDER / "pictures"), "clients": 8}}
PLAY = {
    "data": {"name": "shakespeare", "root": str(FOLDER / "plays"), "clients": 8, "window": 8},
    "model": {"name": "char_transformer", "width": 8, "heads": 2, "layers": 1},
}
MIXED_PLAY = {**PLAY, "data.partition": {"kind": "iid"}}
ARRAYS = {
    "data": {"name": "arrays", "train": str(FOLDER / "samples.npz"), "clients": 8},
    "model": {"name": "mlp", "widths": [8]},
}
FUNCTION = {**ARRAYS, "data": {"name": "python", "python": str(FOLDER / "data.py:load"), "clients": 8}}
IMAGES = {"data": {"name": "image_folder", "train": str(FOLDER / "images"), "clients": 8}}
TABLE = {**ARRAYS, "data": {"name": "scikit_learn", "table": "breast_cancer", "clients": 8}}
MACHINES = {
    "data": {"name": "vibration", "machines": 8, "windows": 20, "clients": 8},
    "model": {"name": "cnn1d", "width": 2},
}
LISTED = {"data.train": 320, "data.partition": {"kind": "file", "file": str(FOLDER / "clients.csv")}}


def downloaded(name: str) -> dict[str, Any]:
    """A data set that is counted, not read."""
    return {"data": {"name": name, "images": 1600, "clients": 8}}


ONE_STEP = {
    "training.rounds": 1, "training.cohort": 1, "training.local": {"steps": 1, "batch": 2},
    "data": {"name": "synthetic", "shape": [3, 16, 16], "classes": 4, "train": 16, "test": 8, "clients": 8},
}  # fmt: skip
"""Enough for a large network to show that it is another one."""

GIVEN = {"data.partition": {"kind": "sizes", "images": [5] * 8}}
DIRICHLET = {"data.partition": {"kind": "dirichlet", "alpha": 0.5}}
UNEVEN = {"data.partition": {"kind": "dirichlet", "alpha": 0.5, "balanced": False, "min_size": 1}}
SKEWED = {"data.partition": {"kind": "label_level", "level": 4}, "data.classes": 8}
SHARDS = {"data.partition": {"kind": "shards", "s": 2}, "data.classes": 8}
IID = {"data.partition": {"kind": "iid"}}
OWN = {"model": {"python": str(FOLDER / "net.py:Net"), "args": {"width": 8}}}
WEIGHTS = [str(FOLDER / f"weights{scale}.safetensors") for scale in (1, 2)]
VISION = {"model": {"torchvision": "mobilenet_v2"}}


def partition(**options: Any) -> dict[str, Any]:
    return {f"data.partition.{name}": value for name, value in options.items()}


def skew(kind: str, **options: Any) -> dict[str, Any]:
    return {"data.feature_skew": {"kind": kind, **options}}


def model(name: str, **options: Any) -> dict[str, Any]:
    return {"model": {"name": name, **options}}


PROBES: list[Probe] = probes(world, [
    ("data<cifar10>.name", {}, downloaded("cifar10"), differs),
    ("data.clients", {}, {"data.clients": 4, "fleet.0.count": 2, "fleet.1.count": 2},
     both(more("flops", "largest"), same("participants"))),
    ("data.images", ARRAYS, {"data.images": 48}, less("flops", "largest")),
    ("data.validation", {"evaluation.split": "validation"}, {"data.validation": 0.5}, less("flops", "largest")),
    # Whose images are whose.
    ("data.partition<dirichlet>.balanced", DIRICHLET, partition(balanced=False), less("smallest")),
    ("data.partition<dirichlet>.min_size", UNEVEN, partition(min_size=30), more("smallest")),
    ("data.partition<dirichlet>.form", UNEVEN, partition(form="client_wise"), differs),
    ("data.partition<natural>.kind", MIXED_PLAY, {"data.partition": {"kind": "natural"}}, less("smallest")),
    ("data.partition<quantity>.sigma", {"data.partition": {"kind": "quantity", "sigma": 0.5}}, partition(sigma=3.0),
     both(more("largest"), less("smallest"))),
    ("data.partition<quantity>.min_size", {"data.partition": {"kind": "quantity", "sigma": 3.0}},
     partition(min_size=30), both(less("largest"), more("smallest"))),
    ("data.partition<sizes>.images[]", GIVEN, partition(images=[9, *[5] * 7]), more("largest")),
    ("data.partition<file>.file", LISTED, partition(file=str(FOLDER / "few.json")), less("largest", "smallest")),
    # What data sets have of their own.
    ("data<arrays>.train", ARRAYS, {"data.train": str(FOLDER / "more.npz")}, more("flops", "largest")),
    ("data<arrays>.test_data", ARRAYS, {"data.test_data": str(FOLDER / "tests.npz")}, more("flops", "largest")),
    ("data.test_share", ARRAYS, {"data.test_share": 0.5}, less("flops", "largest")),
    ("data<arrays>.inputs", ARRAYS, {"data.inputs": "z"}, less("flops", "bytes")),
    ("data<arrays>.inputs[]", ARRAYS, {"data.inputs": ["y", "client"]}, less("flops", "bytes")),
    ("data<python>.python", FUNCTION, {"data.python": str(FOLDER / "data.py:more")}, more("flops", "largest")),
    ("data<python>.args.*", FUNCTION, {"data.args": {"count": 480}}, more("flops", "largest")),
    ("data<image_folder>.train", IMAGES, {"data.train": str(FOLDER / "more images")}, more("flops", "largest")),
    ("data<image_folder>.test_data", IMAGES, {"data.test_data": str(FOLDER / "more images")}, more("flops", "largest")),
    ("data.size", IMAGES, {"data.size": [12, 12]}, more("flops", "bytes")),
    ("data.colours", IMAGES, {"data.colours": 1}, less("flops", "bytes")),
    ("data.classes", ARRAYS, {"data.classes": 9}, more("flops", "bytes")),
    ("data<arrays>.target", ARRAYS, {"data.target": "even"}, less("flops", "bytes")),
    ("data<arrays>.client", {**ARRAYS, "data.partition": {"kind": "natural"}, "data.clients": 8},
     {"data.client": "other"}, differs),
    ("data<arrays>.test_inputs", ARRAYS, {"data.test_inputs": "moved"}, more("flops", "largest")),
    ("data<arrays>.test_inputs[]", ARRAYS, {"data.test_inputs": ["y"] * 6}, more("flops", "largest")),
    ("data<emnist>.variant", downloaded("emnist"), {"data.variant": "digits"}, less("bytes")),
    ("data.classes", downloaded("tiny_imagenet"), {"data.classes": 100}, less("bytes")),
    ("data<parquet>.splits.train", PICTURES, {"data.splits": {"train": "extra"}}, more("flops", "largest")),
    ("data<shakespeare>.window", {**MIXED_PLAY, "data.images": 80}, {"data.window": 16}, more("flops")),
    ("data<shakespeare>.vocabulary", MIXED_PLAY, {"data.vocabulary": 500}, more("flops", "bytes")),
    ("data<shakespeare>.stride", MIXED_PLAY, {"data.stride": 10}, less("flops", "largest")),
    ("data<shakespeare>.train_share", MIXED_PLAY, {"data.train_share": 0.4}, less("flops", "largest")),
    ("data<shakespeare>.least", MIXED_PLAY, {"data.least": 12}, less("flops", "largest")),
    ("data<scikit_learn>.table", TABLE, {"data.table": "wine"}, less("flops", "largest")),
    ("data<vibration>.machines", MACHINES, {"data.machines": 40, "data.partition": {"kind": "iid"}}, more("flops")),
    ("data<vibration>.windows", MACHINES, {"data.windows": 40}, more("flops", "largest")),
    ("data<synthetic>.train", {}, {"data.train": 640}, more("flops", "largest")),
    ("data<synthetic>.shape", {}, {"data.shape": [1, 12, 12]}, more("flops", "bytes")),
    ("data.classes", {}, {"data.classes": 12}, more("bytes")),
    # Which model.
    ("model<cnn>.width", {}, {"model.width": 8}, more("bytes", "flops")),
    ("model<cnn>.kernel", {}, {"model.kernel": 5}, more("bytes", "flops")),
    ("model<cnn>.norm", {}, {"model.norm": "batch"}, more("bytes", "flops")),
    ("model<fedadc_cnn>.name", ONE_STEP, model("fedadc_cnn"), more("bytes", "flops")),
    ("model<mlp>.widths[]", ARRAYS, {"model.widths": [8, 8]}, more("bytes", "flops")),
    ("model<cnn1d>.width", MACHINES, {"model.width": 4}, more("bytes", "flops")),
    ("model<cnn1d>.kernel", MACHINES, {"model.kernel": 15}, more("bytes", "flops")),
    ("model<char_transformer>.width", PLAY, {"model.width": 16}, more("bytes", "flops")),
    ("model<char_transformer>.layers", PLAY, {"model.layers": 2}, more("bytes", "flops")),
    ("model<resnet56>.norm", {**ONE_STEP, **model("resnet56", norm="group")}, {"model.norm": "batch"}, more("bytes")),
    ("model<resnet18>.stem", {**ONE_STEP, **model("resnet18")}, {"model.stem": "imagenet"}, less("flops")),
    ("model<python>.python", {**ONE_STEP, **OWN}, {"model.python": str(FOLDER / "net.py:wide")},
     more("bytes", "flops")),
    ("model<python>.args.*", {**ONE_STEP, **OWN}, {"model.args": {"width": 16}}, more("bytes", "flops")),
    ("model<python>.trainable[]", {**ONE_STEP, **OWN}, {"model.trainable": ["head"]}, less("bytes", "flops")),
    ("model<python>.blocks[]", {**ONE_STEP, **OWN, "methods": ["fedbr"]},
     {"model.blocks": ["stem", "middle.0", "middle.1", "head"]}, more("flops")),
    ("model<torchvision>.torchvision", {**ONE_STEP, **VISION}, {"model.torchvision": "mobilenet_v3_small"},
     less("flops")),
    ("model<torchvision>.args", {**ONE_STEP, **VISION}, {"model.args": {"width_mult": 0.5}}, less("bytes", "flops")),
    ("model<torchvision>.trainable[]", {**ONE_STEP, **VISION}, {"model.trainable": ["classifier"]},
     less("bytes", "flops")),
    ("model<torchvision>.blocks[]", {**ONE_STEP, **VISION, "methods": ["fedbr"]},
     {"model.blocks": ["features.0", "features.9", "classifier"]}, more("flops")),
]) + probes(trained, [
    ("model<resnet56>.init", {**ONE_STEP, **model("resnet56")}, {"model.init": "fan_out"}, differs),
    ("data.root", PICTURES, {"data.root": str(FOLDER / "more")}, differs),
    ("data.test", {}, {"data.test": "partitioned"},
     both(same("moved"), lambda _, after: "worst_tenth" in after.left[0])),
    ("data.augment", {}, {"data.augment": "crop_flip"}, differs),
    ("data.feature_skew<rotation>.degrees", skew("rotation", degrees=90), {"data.feature_skew.degrees": 5}, differs),
    ("data.feature_skew<noise>.std", {**EASY, **skew("noise", std=0.1)}, {"data.feature_skew.std": 3.0},
     more("loss")),
    ("data.normalise.mean[]", {"data.normalise": {"mean": [0.5], "std": [0.3]}}, {"data.normalise.mean": [0.1]},
     differs),
    ("data.normalise.std[]", {"data.normalise": {"mean": [0.5], "std": [0.3]}}, {"data.normalise.std": [3.0]}, NEARER),
    ("data.channels", {**ARRAYS, "data.inputs": "images", "data.channels": "first"}, {"data.channels": "last"},
     differs),
    ("data.partition<iid>.kind", SHARDS, IID, more("held")),
    ("data.partition<shards>.s", SHARDS, partition(s=4), more("held")),
    ("data.partition<label_level>.level", {**SKEWED, **partition(form="missing")}, partition(level=8), less("held")),
    ("data.partition<label_level>.form", SKEWED, partition(form="missing"), less("held")),
    ("data.partition<dirichlet>.alpha", DIRICHLET, partition(alpha=100.0), more("held")),
    ("data.partition<dirichlet>.order", DIRICHLET, partition(order="random_client"), differs),
    ("data.kind", {**ARRAYS, "data.inputs": "images"}, {"data.kind": "numbers"}, differs),
    ("data<arrays>.test_target", {**ARRAYS, "data.test_inputs": "moved"}, {"data.test_target": "even"}, differs),
    ("data<parquet>.folder", PICTURES, {"data.folder": "inner"}, differs),
    ("data<parquet>.columns.image", PICTURES, {"data.columns": {"image": "other_image"}}, differs),
    ("data<parquet>.columns.label", PICTURES, {"data.columns": {"label": "other_label"}}, differs),
    ("data<parquet>.splits.test", PICTURES, {"data.splits": {"test": "exam"}}, both(differs, same("moved"))),
    ("data<synthetic>.test_images", {}, {"data.test_images": 40}, both(differs, same("moved"))),
    ("data<synthetic>.signal", EASY, {"data.signal": 0.1}, both(more("loss"), less("accuracy"))),
    ("data<synthetic>.images_seed", {}, {"data.images_seed": 1}, differs),
    ("model.buffers", {"model.norm": "batch"}, {"model.buffers": "local"}, both(less("bytes"), same("flops"))),
    ("model.local[]", {}, {"model.local": ["conv1"]}, both(less("bytes"), same("flops"))),
    ("model.weights", {}, {"model.weights": WEIGHTS[0]}, both(differs, same("bytes"))),
    ("model.weights.file", {"model.weights": {"file": WEIGHTS[0]}}, {"model.weights.file": WEIGHTS[1]}, differs),
    ("model.weights.trained", {"model.weights": {"file": WEIGHTS[0]}}, {"model.weights.trained": WEIGHTS[1]}, differs),
    ("model.weights.skip[]", {"model.weights": {"file": WEIGHTS[0]}}, {"model.weights.skip": ["fc2"]}, differs),
    ("model<cnn>.groups", {"model.norm": "group", "model.groups": 1}, {"model.groups": 2},
     both(differs, same("flops"))),
    ("model<char_transformer>.heads", PLAY, {"model.heads": 4}, both(differs, same("bytes"))),
    ("model<resnet56>.groups", {**ONE_STEP, **model("resnet56", norm="group")}, {"model.groups": 1},
     both(differs, same("bytes"))),
])  # fmt: skip
