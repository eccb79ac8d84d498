"""Checkpoints of a run's learner: tensors stored once by their content, and a manifest that names them.

A checkpoint is complete or absent: tensors are written, flushed and renamed first, the manifest last. Every file is
checked against its digest before it is used. The newest checkpoints are kept; whatever else lies there goes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

KEPT = 2
"""Checkpoints kept; the older one serves where the newest is damaged."""


class CheckpointDamaged(Exception):  # noqa: N818  (what it says of the checkpoint, like FileNotFoundError's noun)
    """A checkpoint's file is missing, cut short or altered."""


def write_checkpoint(folder: Path, round: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> str:
    """Store a checkpoint; returns the name of its manifest.

    Args:
        folder: the run's ``checkpoints`` folder.
        round: rounds that have ended.
        tensors: what the learner holds, by name.
        facts: everything else that it holds, as JSON data.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Equal tensors are one file: a client that was not picked since the last checkpoint costs nothing.
    named = {
        name: _store(folder, save({"tensor": tensor.detach().cpu().contiguous()})) for name, tensor in tensors.items()
    }
    text = json.dumps({"round": round, "tensors": named, "facts": facts}).encode()
    manifest = f"round-{round:06d}-{hashlib.blake2b(text, digest_size=16).hexdigest()}.json"
    _write(folder / manifest, text)
    return manifest


def read_checkpoint(folder: Path, manifest: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a checkpoint.

    Raises:
        CheckpointDamaged: a file is missing, or is not what was written.
    """
    text = _checked(folder / manifest, manifest.rpartition("-")[2].removesuffix(".json"))
    stored = json.loads(text)
    blobs = {
        digest: load(_checked(folder / f"{digest}.safetensors", digest)) for digest in set(stored["tensors"].values())
    }
    return {name: blobs[digest]["tensor"] for name, digest in stored["tensors"].items()}, stored["facts"]


def prune(folder: Path, manifests: list[str]) -> None:
    """Keep the checkpoints of these manifests, and remove every other file of the folder."""
    wanted = set(manifests)
    for manifest in manifests:
        try:
            wanted |= {
                f"{digest}.safetensors" for digest in json.loads((folder / manifest).read_text())["tensors"].values()
            }
        except (OSError, ValueError, KeyError):
            continue
    for path in folder.iterdir():
        if path.name not in wanted:
            path.unlink()


def _store(folder: Path, content: bytes) -> str:
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    path = folder / f"{digest}.safetensors"
    if not path.exists():
        _write(path, content)
    return digest


def _write(path: Path, content: bytes) -> None:
    """Write, flush to the disk, then rename: the file is whole or not there."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def _checked(path: Path, digest: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointDamaged(f"{path.name}: {error.strerror}") from None
    if hashlib.blake2b(content, digest_size=16).hexdigest() != digest:
        raise CheckpointDamaged(f"{path.name} is not what was written")
    return content
