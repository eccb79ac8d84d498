"""Files that scenarios may name, small and made up: a play, arrays, a network, weights."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

_KEPT = tempfile.TemporaryDirectory(prefix="edgefl-fields-")
FOLDER = Path(_KEPT.name)
"""Where they lie until the tests end."""

CLIENTS = 8


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


_count, _draws = np.arange(320), np.random.default_rng(1)
_x = _draws.standard_normal((320, 6), np.float32) + (_count % 4)[:, None].astype(np.float32)
np.savez(FOLDER / "samples.npz", x=_x, y=_count % 4)
(FOLDER / "net.py").write_text(
    "from torch import nn\n\n"
    "def net(width=8):\n"
    "    layers = nn.Conv2d(3, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 4)\n"
    "    return nn.Sequential(*layers)\n\n"
    "def wide(width):\n    return net(4 * width)\n"
)
_LAYERS = {"conv1.0": (2, 1, 3, 3), "conv2.0": (4, 2, 3, 3), "fc1.1": (8, 16), "fc2.layer": (4, 8)}
_shapes = {f"{name}.weight": shape for name, shape in _LAYERS.items()}
_shapes |= {f"{name}.bias": shape[:1] for name, shape in _LAYERS.items()}
save_file({name: torch.full(shape, 0.01) for name, shape in _shapes.items()}, FOLDER / "weights.safetensors")

_play("plays/tinyshakespeare/input.txt", 12, 1)
_play("more/tinyshakespeare/input.txt", 9, 2)
