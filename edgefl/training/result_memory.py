"""Cached results of training jobs on disk, keyed by all inputs of the job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from edgefl.training.base import Arrived, Engine, JobResult, JobTask, delivered, ignored
from edgefl.training.job import Evaluation

LIMIT_BYTES = 1 << 30
"""Size limit of the cache on disk; results beyond it are not stored and must be trained again when needed."""


_WHOLE = "end"
"""The last word of a stored evaluation; without it the file is incomplete."""


class ResultMemory:
    """A folder of results for one seed of one run directory.

    The run directory must ensure that the data set, the build of torch, the device, and the model's task, constants and
    local part do not change; the keys do not contain them.

    Args:
        folder: created with the first result.
        limit: maximum bytes on disk.

    Attributes:
        trained: number of jobs that were trained because no result was stored.
        found: number of jobs whose result was stored.
    """

    def __init__(self, folder: Path, limit: int = LIMIT_BYTES) -> None:
        self._folder = folder
        self._limit = limit
        self._stored_bytes = sum(path.stat().st_size for path in folder.glob("*")) if folder.is_dir() else 0
        self.trained = 0
        self.found = 0

    def get(self, key: str, device: torch.device) -> JobResult | None:
        """Return the result for a key; ``None`` if there is none or its file is damaged."""
        try:
            digest, content = (self._folder / key).read_bytes().split(b"\n", 1)
            if hashlib.blake2b(content).hexdigest().encode() != digest:
                return None
            tensors = {name: tensor.to(device) for name, tensor in load(content).items()}
        except (OSError, ValueError, SafetensorError):
            return None
        kept = {name.removeprefix("kept/"): each for name, each in tensors.items() if name.startswith("kept/")}
        return JobResult(tensors["final"], tensors["losses"], tuple(tensors["sizes"].tolist()), kept)

    def evaluation(self, key: str) -> Evaluation | None:
        """Return the stored evaluation for a key; ``None`` if there is none or its file is damaged."""
        try:
            metric, loss, end = (self._folder / key).read_text("ascii").split()
            return Evaluation(float.fromhex(metric), float.fromhex(loss)) if end == _WHOLE else None
        except (OSError, ValueError):
            return None

    def keep_evaluation(self, key: str, found: Evaluation) -> None:
        """Store an evaluation's metric and loss, unless writing fails."""
        self._store(key, f"{found.metric.hex()} {found.loss.hex()} {_WHOLE}".encode())

    def put(self, key: str, result: JobResult) -> None:
        """Store a result, unless the limit is reached or writing fails."""
        kept = {f"kept/{name}": tensor for name, tensor in result.kept.items()}
        named = {"final": result.final, "losses": result.cross_entropies, **kept}
        sizes = torch.tensor(result.batch_sizes, dtype=torch.int64)
        content = save({**{name: each.detach().cpu().contiguous() for name, each in named.items()}, "sizes": sizes})
        # After a power failure the digest shows that the file is incomplete.
        self._store(key, hashlib.blake2b(content).hexdigest().encode() + b"\n" + content)

    def _store(self, key: str, content: bytes) -> None:
        if self._stored_bytes + len(content) > self._limit:
            return
        try:
            for folder in (self._folder.parent, self._folder):  # not the run directory, which may have been moved
                folder.mkdir(exist_ok=True)
            (self._folder / key).write_bytes(content)
        except OSError:
            return
        self._stored_bytes += len(content)


class RememberingEngine:
    """An engine that trains no job twice; only for engines whose results are bit-identical to training each job alone.

    Args:
        engine: trains jobs without a stored result.
        memory: the stored results.
        model_key: distinguishes the models of a run directory by their layers, and the engines by their precision.
        device: the device of the returned results.
    """

    def __init__(self, engine: Engine, memory: ResultMemory, model_key: str, device: torch.device) -> None:
        self._engine = engine
        self._memory = memory
        self._model_key = model_key
        self._device = device

    def train(self, tasks: Sequence[JobTask], arrived: Arrived = ignored) -> list[JobResult]:
        """Train the jobs without a stored result; see :class:`~edgefl.training.base.Engine`."""
        digests: dict[int, str] = {}
        keys = [signature(task, self._model_key, digests) for task in tasks]
        known = [None if key is None else self._memory.get(key, self._device) for key in keys]
        missing = [place for place, result in enumerate(known) if result is None]
        fresh = self._engine.train([tasks[place] for place in missing]) if missing else []
        self._memory.found += len(tasks) - len(missing)
        self._memory.trained += len(missing)
        for place, result in zip(missing, fresh, strict=True):
            known[place] = result
            key = keys[place]
            if key is not None:
                self._memory.put(key, result)
        return delivered([result for result in known if result is not None], arrived)

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        """Return metric and mean loss on the evaluation split; stored like the results of jobs."""
        described = json.dumps([self._model_key, content_of(vector), mode], default=repr)
        key = f"evaluation-{hashlib.blake2b(described.encode(), digest_size=20).hexdigest()}"
        known = self._memory.evaluation(key)
        if known is None:
            known = self._engine.evaluate(vector, mode)
            self._memory.keep_evaluation(key, known)
        return known

    def close(self) -> None:
        """Release the engine's workers and memory."""
        self._engine.close()


def content_of(tensor: Tensor) -> str:
    """Return a digest of a tensor's values, dtype and shape.

    >>> zeros = torch.zeros(2)
    >>> content_of(zeros.clone()) == content_of(zeros), content_of(-zeros) == content_of(zeros)
    (True, False)
    """
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return f"{tensor.dtype} {tuple(tensor.shape)} {hashlib.sha256(flat.numpy().data).hexdigest()}"


def signature(task: JobTask, model_key: str, digests: dict[int, str]) -> str | None:
    """Return a digest of all inputs that determine the job's result; ``None`` if it cannot distinguish the job's parts.

    The method's label and the round number are left out: they are used in messages only.

    Args:
        task: the job.
        model_key: see :class:`RememberingEngine`.
        digests: digests of tensors seen before, by ``id``; new ones are added.
    """
    parts = [_described(part) for part in (task.objective, task.rule, task.options)]
    if None in parts:
        return None

    def content(tensor: Tensor) -> str:
        if id(tensor) not in digests:
            digests[id(tensor)] = content_of(tensor)
        return digests[id(tensor)]

    named = {
        kind: {name: content(tensor) for name, tensor in sorted(getattr(task, kind).items())}
        for kind in ("frozen", "vectors", "facts")
    }
    plain = [task.seed, task.client, task.dispatch, task.lr.hex(), task.steps, task.alpha]
    everything = json.dumps([model_key, parts, plain, content(task.start), named])
    return hashlib.blake2b(everything.encode(), digest_size=20).hexdigest()


def _described(part: object) -> list[object] | None:
    """Return a part's type and options, with the types of the parts inside it; ``None`` if it has other state.

    The types are needed because different parts may have equal options: FedDyn on one loss without options differs
    from FedDyn on another.
    """
    if not isinstance(part, BaseModel) or part.__pydantic_private__:
        return None
    inner = [_described(value) for _, value in part if isinstance(value, BaseModel)]
    kind = f"{type(part).__module__}.{type(part).__qualname__}"
    return None if None in inner else [kind, part.model_dump_json(), inner]
