"""Files that scenarios may name, small and made up: images, a play, traces, graphs."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from safetensors.torch import save_file

_KEPT = tempfile.TemporaryDirectory(prefix="edgefl-fields-")
FOLDER = Path(_KEPT.name)
"""Where they lie until the tests end."""

CLIENTS = 8


def _encoded(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="PNG")
    return stream.getvalue()


def _images(file: str, count: int, seed: int) -> None:
    """Two columns of images and two of labels."""
    draws = np.random.default_rng(seed)
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])

    def column() -> pa.Array:
        pixels = draws.integers(0, 256, (count, 8, 8), np.uint8)
        return pa.array([{"bytes": _encoded(each), "path": None} for each in pixels], type=kind)

    classes = np.arange(count) % 4
    table = {"image": column(), "other_image": column(), "label": classes, "other_label": draws.permutation(classes)}
    path = FOLDER / file
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(table), path)


def _play(file: str, speakers: int, seed: int) -> None:
    """Each speaker says less than the one before."""
    draws = np.random.default_rng(seed)
    path = FOLDER / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "\n\n".join(
            f"SPEAKER {number}:\n" + "".join(draws.choice(list("abcd "), 120 - 6 * number))
            for number in range(speakers)
        ),
        encoding="utf-8",
    )


def _graph(file: str, *, server: str, prefix: str, rate: float) -> None:
    """Half of the clients behind one router and half behind another, further away; and a server even further away."""
    graph = nx.DiGraph()
    ways = [(server, "near", 0.01), ("near", "far", 0.5), ("near", "far away", 3.0)]
    ways += [("near" if client < CLIENTS / 2 else "far", f"{prefix}{client}", 0.01) for client in range(CLIENTS)]
    for one, other, latency in ways:
        graph.add_edge(one, other, capacity=rate, latency=latency, air=f"down from {one}")
        graph.add_edge(other, one, capacity=rate, latency=latency, air=f"up to {one}")
    if file.endswith(".json"):
        (FOLDER / file).write_text(json.dumps(nx.node_link_data(graph, edges="links")), encoding="utf-8")
    else:
        nx.write_graphml(graph, FOLDER / file)


def _arrays(file: str, count: int, seed: int) -> None:
    """Samples of four classes from eight clients, of which each has more than the one before."""
    draws = np.random.default_rng(seed)
    classes, images = np.arange(count) % 4, draws.integers(0, 256, (count, 6, 5, 8), np.uint8)
    client = np.sqrt(np.linspace(0, CLIENTS**2 - 1, count)).astype(int)
    x = draws.standard_normal((count, 6), np.float32) + classes[:, None].astype(np.float32)
    arrays = {
        "x": x,
        "y": classes,
        "client": client,
        "z": x[:, :4],
        "even": classes % 2,
        "images": images,
        "moved": x + 1,
    }
    np.savez(FOLDER / file, **arrays, each=np.eye(4)[classes], other=CLIENTS - 1 - client)


def _classes(folder: str, count: int, seed: int) -> None:
    """Coloured images of four classes, in a subfolder for each."""
    draws = np.random.default_rng(seed)
    for index, pixels in enumerate(draws.integers(0, 256, (count, 8, 8, 3), np.uint8)):
        path = FOLDER / folder / f"class {index % 4}" / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_encoded(pixels))


_classes("images", 128, 5)
_classes("more images", 192, 6)
_arrays("samples.npz", 320, 1)
_arrays("more.npz", 480, 2)
_arrays("tests.npz", 80, 3)
_arrays("exam.npz", 40, 4)
(FOLDER / "data.py").write_text(
    "import numpy as np\n"
    "def load(count=320):\n    return {'train': (np.arange(4.0 * count).reshape(count, 4) % 7, np.arange(count) % 4)}\n"
    "def more():\n    return load(400)\n"
)
(FOLDER / "net.py").write_text(
    """
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3)
        self.middle = nn.Sequential(nn.Conv2d(width, width, 3), nn.Conv2d(width, width, 3))
        self.head = nn.Linear(width, 4)

    def forward(self, inputs):
        return self.head(self.middle(self.stem(inputs)).mean(dim=(2, 3)))


def wide(width):
    return Net(4 * width)
"""
)
_LAYERS = {"conv1.0": (2, 1, 3, 3), "conv2.0": (4, 2, 3, 3), "fc1.1": (8, 16), "fc2.layer": (4, 8)}
for _scale in (1, 2):
    _shapes = {f"{name}.weight": shape for name, shape in _LAYERS.items()}
    _shapes |= {f"{name}.bias": shape[:1] for name, shape in _LAYERS.items()}
    _tensors = {name: torch.full(shape, 0.01 * _scale) for name, shape in _shapes.items()}
    save_file(_tensors, FOLDER / f"weights{_scale}.safetensors")
(FOLDER / "clients.csv").write_text("client\n" + "".join(f"{index % CLIENTS}\n" for index in range(320)))
(FOLDER / "few.json").write_text(json.dumps({str(client): [2 * client, 2 * client + 1] for client in range(CLIENTS)}))

for _folder, _seed in (("pictures", 1), ("pictures/inner", 2), ("more", 3)):
    for _split, _count in (("train", 64), ("extra", 96), ("test", 32), ("exam", 24)):
        _images(f"{_folder}/{_split}-0.parquet", _count, _seed * 100 + _count)
_play("plays/tinyshakespeare/input.txt", 12, 1)
_play("more/tinyshakespeare/input.txt", 9, 2)
_graph("graph.json", server="server", prefix="client/", rate=2e6)
_graph("slow.graphml", server="server", prefix="client/", rate=0.2e6)
_graph("named.json", server="centre", prefix="phone ", rate=2e6)

(FOLDER / "steady.mahimahi").write_text("".join(f"{12 * line}\n" for line in range(1, 51)))
"""1 Mbit/s."""
(FOLDER / "bursty.mahimahi").write_text("".join(f"{400 + line}\n" for line in range(1, 51)))
"""Nothing for 0.4 s, then 12 Mbit/s for 50 ms."""
_RATES = {"near": "9 0.5 9 0.7", "far": "0.1 0.3 0.2 0.1"}
(FOLDER / "runs.csv").write_text(
    "t,late,rate,slow,run,half\n"
    + "".join(
        f"{0.05 * step:g},{5 * step},{rate},0.05,{run},{run}{step // 2}\n"
        for run, rates in _RATES.items()
        for step, rate in enumerate(rates.split())
    )
)
"""Two runs of 0.2 s, one fast, one slow, each of two halves."""
(FOLDER / "half days.json").write_text(
    json.dumps(
        [{"duration": 7200, "active": [3600], "inactive": [10800], "finish_time": 14400} for _ in range(CLIENTS)]
    )
)
(FOLDER / "late.json").write_text(
    json.dumps(
        [{"duration": 7200, "active": [7200], "inactive": [14400], "finish_time": 14400} for _ in range(CLIENTS)]
    )
)

for _name, _slowest in (("capacity", 4.0), ("slower", 40.0)):
    _devices = {
        str(number): {"computation": {"small": speed, "wide": speed**2}, "communication": 1000 * speed}
        for number, speed in enumerate((1.0, 2.0, _slowest))
    }
    (FOLDER / f"{_name}.json").write_text(json.dumps(_devices), encoding="utf-8")
