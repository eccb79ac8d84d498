"""The parts that all methods of one scenario and seed share, so that only the method differs."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from edgefl.data.attackers import Attackers
from edgefl.data.federated import FederatedData
from edgefl.methods.parts.local_part import keeping_local
from edgefl.methods.parts.objective import Objective
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.layout import content_of
from edgefl.models.registry import ModelSpec, build_model, initial_vector
from edgefl.training.client_data import ClientData
from edgefl.training.engine_spec import (
    ENGINES,
    Engine,
    EngineInputs,
    EngineSpec,
    check_precision,
    choose_engine,
    keep_freed_memory,
)
from edgefl.training.job import Evaluation
from edgefl.training.job_task import JobResult, JobTask
from edgefl.training.kept_states import KeptModels
from edgefl.training.learner import MethodLearner
from edgefl.training.parts_of_models import EngineOfParts, PartsOfModel
from edgefl.training.serialization import split


class RememberingEngine:
    """An engine that trains no job twice; only for engines whose results are bit-identical to training each job alone.

    The files in ``folder`` are for one seed of one scenario.
    """

    def __init__(self, engine: Engine, folder: Path, model: BlockModel, device: torch.device) -> None:
        self._engine = engine
        self._folder = folder
        self._model = repr(model)
        self._device = device
        folder.mkdir(parents=True, exist_ok=True)

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


class AdaptedModel(NamedTuple):
    """Shared by methods that train the same model on the same data: its skeleton, first weights, engine and data."""

    model: BlockModel
    initial: Tensor
    engine: Engine
    data: ClientData


class TrainingCore:
    """Data on the training device, one skeleton, one initial model and one engine; creates a learner for each method.

    A method whose objective adapts the model (MOON's projection head) gets its own :class:`AdaptedModel`. Blocks are
    initialised in order from one generator, so the blocks before the first change have the same initial values as in
    all other methods.

    As a context manager, it closes its engines at the end.
    """

    def __init__(
        self,
        data: ClientData,  # the clients' data, on the training device
        model: BlockModel,  # the scenario's skeleton, which the core takes over and moves to the training device
        seed: int,  # decides the initial model x^0; see initial_vector
        device: torch.device | str = "cpu",
        *,
        engine: EngineSpec | str = "auto",  # a specification, or an engine's name; see choose_engine
        # number of concurrent jobs in the parallel engine; by default the process's cores. It never changes a result.
        workers: int | None = None,
        # a folder in which results are kept, so that no job is trained twice; not for the batched engine, whose bits
        # depend on the jobs that are trained side by side
        results: Path | None = None,
        attackers: Attackers | None = None,  # the clients that change their updates
    ) -> None:
        keep_freed_memory()
        self._device = torch.device(device)
        self._seed = seed
        self._workers = workers
        self._results, self._attackers = results, attackers
        self._spec = EngineSpec.of(engine)
        check_precision(self._spec.precision, self._device)
        self.engine_name = choose_engine(self._spec.kind, self._device, workers)
        self.data = data
        self._engines = ExitStack()  # which close() closes
        self._own = self._ready(model, data)
        self._adapted: list[tuple[Objective, AdaptedModel]] = []

    @classmethod
    def of(
        cls,
        data: FederatedData,
        spec: ModelSpec,
        seed: int,
        *,
        engine: EngineSpec | str = "auto",
        workers: int | None = None,
        results: Path | None = None,
        attackers: Attackers | None = None,
    ) -> Self:
        """The core of a scenario's data and model for one seed; it trains on the device that holds the data."""
        model = build_model(spec, data.shape, data.classes, data.train.task, tokens=data.tokens)
        device = data.train.device
        given = {"engine": engine, "workers": workers, "results": results, "attackers": attackers}
        return cls(ClientData(data), model, seed, device, **given)  # type: ignore[arg-type]

    @property
    def model(self) -> BlockModel:
        return self._own.model

    @property
    def initial(self) -> Tensor:
        """The scenario's initial model x^0 ``[size]``."""
        return self._own.initial

    def learner(self, method: Method, kept_models: KeptModels | None = None) -> MethodLearner:
        """A new learner for ``method``, at model version 0; ``kept_models`` selects additional values to keep."""
        adapted = self._adapted_to(method.objective)
        method = keeping_local(method, adapted.model.layout)
        parts = None if method.submodels is None else PartsOfModel(method, adapted.model)
        return MethodLearner(
            method,
            adapted.model,
            adapted.initial.clone(),
            adapted.data,
            adapted.engine if parts is None else self._engine_of_parts(parts, adapted),
            seed=self._seed,
            kept_models=kept_models,
            parts=parts,
            attackers=self._attackers if adapted.data is self.data else None,
        )

    def _engine_of_parts(self, parts: PartsOfModel, adapted: AdaptedModel) -> Engine:
        engine = EngineOfParts(adapted.engine, lambda level: self.engine_for(parts.of(level).model.to(self._device)))
        self._engines.callback(engine.close)
        return engine

    def _adapted_to(self, objective: Objective) -> AdaptedModel:
        for known, adapted in self._adapted:
            if known == objective:
                return adapted
        model, data = objective.adapt(self.model), self.data if objective.server is None else self.data.together()
        if model is self.model and data is self.data:
            return self._own
        self._adapted.append((objective, self._ready(model, data)))
        return self._adapted[-1][1]

    def _ready(self, model: BlockModel, data: ClientData) -> AdaptedModel:
        initial = initial_vector(model, self._seed).to(self._device)
        model = model.to(self._device)
        engine = self.engine_for(model, data)
        self._engines.callback(engine.close)
        return AdaptedModel(model, initial, engine, data)

    def engine_for(self, model: BlockModel, data: ClientData | None = None) -> Engine:
        """A new engine for a skeleton on the training device; the caller closes it."""
        spec, data = self._spec, self.data if data is None else data
        given = EngineInputs(model, data, self._device, self._workers, spec.precision)
        entry = ENGINES[self.engine_name]
        engine = entry.build(given)
        if self._results is None or not entry.alike:
            return engine
        return RememberingEngine(engine, self._results, model, self._device)

    def close(self) -> None:
        self._engines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
