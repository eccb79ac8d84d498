"""Checkpoints of a run's learner: packs of the tensors that are new since the last one, and a manifest that lists them.

A checkpoint is complete or absent: its pack is written, flushed and renamed first, the manifest last. Every tensor is
checked against the digest of its content before it is used. The newest checkpoints are kept; all other files in the
folder are removed.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from edgefl.files import write_file
from edgefl.training.result_memory import content_of

KEPT = 2
"""The number of checkpoints that are kept; the older one is used if the newest is damaged."""

_WORTH_KEEPING = 0.25
"""The minimum share of a pack that a new checkpoint must still use to refer to this pack.

So the packs of a checkpoint never hold more than four times its tensors, regardless of the changes between checkpoints.
"""


class CheckpointDamaged(Exception):  # noqa: N818  (what it says of the checkpoint, like FileNotFoundError's noun)
    """A checkpoint's file is missing, truncated, changed, or has other contents than a checkpoint."""


class _Manifest(BaseModel):
    """The contents of a manifest.

    Attributes:
        round: rounds that have ended.
        tensors: the digest of each tensor's content, by the tensor's name.
        packs: the pack of each content, by its digest.
        facts: the learner's other state.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    round: int
    tensors: dict[str, str]
    packs: dict[str, str]
    facts: dict[str, Any]


def write_checkpoint(
    folder: Path, round: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], earlier: Iterable[str] = ()
) -> str:
    """Store a checkpoint; return the name of its manifest.

    Args:
        folder: the run's ``checkpoints`` folder.
        round: rounds that have ended.
        tensors: the learner's tensors, by name; on the CPU, and not changed in the meantime.
        facts: its other state, as JSON data.
        earlier: manifests that are also kept, newest first. Their tensors are not written again, unless most of the
            pack is no longer needed; so a client that was not picked since then costs almost nothing.
    """
    folder.mkdir(exist_ok=True)  # does not create a folder that was moved
    contents = {name: _content(tensor) for name, tensor in tensors.items()}
    distinct = {contents[name]: tensor for name, tensor in tensors.items()}
    packs = _known(folder, earlier, {content: tensor.nbytes for content, tensor in distinct.items()})
    fresh = _apart({content: tensor for content, tensor in distinct.items() if content not in packs})
    if fresh:
        pack = f"pack-{_digest(' '.join(sorted(fresh)).encode())}.safetensors"
        write_file(folder / pack, save(fresh))
        packs |= dict.fromkeys(fresh, pack)
    text = json.dumps({"round": round, "tensors": contents, "packs": packs, "facts": facts}).encode()
    manifest = f"round-{round:06d}-{_digest(text)}.json"
    write_file(folder / manifest, text)
    return manifest


def read_checkpoint(
    folder: Path, manifest: str, *, round: int | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a checkpoint.

    Args:
        folder: the run's ``checkpoints`` folder.
        manifest: the name of its manifest.
        round: the rounds that must have ended in it, if given.

    Raises:
        CheckpointDamaged: a file is missing, or differs from the written file.
        UserError: a file is a link, or its name is a path to another place.
    """
    stored = _manifest(folder, manifest)
    if round not in (None, stored.round):
        raise CheckpointDamaged(f"{manifest} is of round {stored.round}")
    missing = set(stored.tensors.values()) - stored.packs.keys()
    if missing:
        raise CheckpointDamaged(f"{manifest} names no pack for {len(missing)} tensors")
    held: dict[str, list[str]] = {}
    for content, pack in stored.packs.items():
        held.setdefault(pack, []).append(content)
    found: dict[str, Tensor] = {}
    for pack, wanted in held.items():
        found |= _read_pack(folder / pack, wanted)
    return {name: found[content] for name, content in stored.tensors.items()}, stored.facts


def prune(folder: Path, manifests: list[str]) -> None:
    """Keep the checkpoints of these manifests, and remove every other file of the folder."""
    wanted = set(manifests)
    for manifest in manifests:
        try:
            wanted |= set(_manifest(folder, manifest).packs.values())
        except CheckpointDamaged:
            continue
    for path in folder.iterdir():
        if path.name not in wanted:
            path.unlink()


def _known(folder: Path, earlier: Iterable[str], wanted: Mapping[str, int]) -> dict[str, str]:
    """The packs of earlier checkpoints that contain ``wanted`` contents (with their bytes) and are worth keeping."""
    places: dict[str, str] = {}
    for manifest in earlier:
        try:
            held = _manifest(folder, manifest).packs
        except CheckpointDamaged:
            continue
        places = {content: pack for content, pack in held.items() if content in wanted} | places
    live: Counter[str] = Counter()
    for content, pack in places.items():
        live[pack] += wanted[content]
    worth = {pack for pack, size in live.items() if size >= _WORTH_KEEPING * _size(folder / pack)}
    return {content: pack for content, pack in places.items() if pack in worth}


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with separate memory: a file contains tensors, not views of other tensors."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage()
        whole = tensor.is_contiguous() and memory.nbytes() == tensor.nbytes and memory.data_ptr() not in seen
        seen.add(memory.data_ptr())
        apart[name] = tensor if whole else tensor.clone(memory_format=torch.contiguous_format)
    return apart


def _manifest(folder: Path, name: str) -> _Manifest:
    text = _read(folder / name)
    if _digest(text) != name.rpartition("-")[2].removesuffix(".json"):
        raise CheckpointDamaged(f"{name} differs from the written file")
    try:
        return _Manifest.model_validate(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise CheckpointDamaged(f"{name} is no manifest: {error}") from None


def _read_pack(path: Path, wanted: Iterable[str]) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as pack:
            found = {content: pack.get_tensor(content) for content in wanted}
    except (OSError, SafetensorError) as error:
        raise CheckpointDamaged(f"{path.name}: {error}") from None
    if any(_content(tensor) != content for content, tensor in found.items()):
        raise CheckpointDamaged(f"{path.name} differs from the written file")
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointDamaged(f"{path.name}: {error.strerror}") from None


def _size(path: Path) -> float:
    """In bytes; 0 for a missing pack."""
    try:
        return path.stat().st_size
    except OSError:
        return float("inf")


def _content(tensor: Tensor) -> str:
    return _digest(content_of(tensor).encode())


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
