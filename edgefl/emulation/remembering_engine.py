"""An engine that keeps the results of training, which the emulation of a scenario takes from its simulation."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgefl.models.layout import content_of
from edgefl.training.engine_spec import Engine, EngineInputs
from edgefl.training.job import Evaluation
from edgefl.training.job_task import JobResult, JobTask
from edgefl.training.serialization import split


class RememberingEngine:
    """An engine that trains no job twice; only for engines whose results are bit-identical to training each job alone.

    ``folder`` keeps the results of one scenario.
    """

    def __init__(self, folder: Path, engine: Engine, given: EngineInputs, seed: int) -> None:
        self._engine = engine
        self._folder = folder / str(seed)
        self._model, self._device = repr(given.model), given.device
        self._folder.mkdir(parents=True, exist_ok=True)

    def train(self, tasks: Sequence[JobTask]) -> list[JobResult]:
        contents: dict[int, str] = {}
        files = [self._file(_described(task, contents)) for task in tasks]
        missing = [place for place, file in enumerate(files) if not file.exists()]
        for place, result in zip(missing, self._engine.train([tasks[place] for place in missing]), strict=True):
            kept = dict(result.kept)
            torch.save((result.final, result.cross_entropies, result.batch_sizes, kept), files[place])
        return [JobResult(*torch.load(file, map_location=self._device)) for file in files]

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        file = self._file(f"evaluation {content_of(vector)} {sorted(mode.items())}")
        if not file.exists():
            torch.save(tuple(self._engine.evaluate(vector, mode)), file)
        return Evaluation(*torch.load(file))

    def close(self) -> None:
        self._engine.close()

    def _file(self, described: str) -> Path:
        return self._folder / hashlib.blake2b(f"{self._model} {described}".encode(), digest_size=20).hexdigest()


def _described(task: JobTask, contents: dict[int, str]) -> str:
    """All inputs that determine a job's result; ``contents`` has those of tensors seen before, by ``id``."""
    bare, tensors = split(task)
    for tensor in tensors.values():
        if id(tensor) not in contents:
            contents[id(tensor)] = content_of(tensor)
    named = sorted((name, contents[id(tensor)]) for name, tensor in tensors.items())
    return f"{replace(bare, method='', round=0)!r} {named}"  # label and round are used in messages only
