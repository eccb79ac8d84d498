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
from PIL import Image

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
(FOLDER / "waves.csv").write_text("seconds,bits_per_second\n0,1e6\n0.05,2e5\n0.1,4e6\n")
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
