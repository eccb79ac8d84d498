"""The parts that all methods of one scenario and seed share, so that only the method differs."""

from contextlib import ExitStack
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from edgefl.data.attackers import Attackers
from edgefl.data.federated import FederatedData
from edgefl.methods.parts.local_part import keeping_local
from edgefl.methods.parts.objective import Objective
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.registry import ModelSpec, build_model, initial_vector
from edgefl.training.engine_spec import (
    ENGINES,
    Engine,
    EngineInputs,
    EngineSpec,
    EngineWrapper,
    check_precision,
    choose_engine,
    keep_freed_memory,
)
from edgefl.training.job_task import ClientData
from edgefl.training.kept_states import KeptModels
from edgefl.training.learner import MethodLearner
from edgefl.training.parts_of_models import EngineOfParts, PartsOfModel


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
        # what takes the place of an engine; not of the batched one, whose bits depend on the jobs that are trained side
        # by side
        wrapper: EngineWrapper | None = None,
        attackers: Attackers | None = None,  # the clients that change their updates
    ) -> None:
        keep_freed_memory()
        self._device = torch.device(device)
        self._seed = seed
        self._workers = workers
        self._wrapper, self._attackers = wrapper, attackers
        self._spec = EngineSpec.of(engine)
        check_precision(self._spec.precision, self._device)
        self.engine_name = choose_engine(self._spec.kind, self._device, workers)
        self.data = data
        self._engines = ExitStack()  # which close() closes
        self._own = self._ready(model, data)
        self._adapted: list[tuple[Objective, AdaptedModel]] = []

    @classmethod
    def of(cls, data: FederatedData, spec: ModelSpec, seed: int, **options: Any) -> Self:
        """The core of a scenario's data and model for one seed, on the device that holds the data.

        The other ``options`` are those of the class.
        """
        model = build_model(spec, data.shape, data.classes, data.train.task, tokens=data.tokens)
        return cls(ClientData(data), model, seed, data.train.device, **options)

    @property
    def model(self) -> BlockModel:
        return self._own.model

    @property
    def initial(self) -> Tensor:
        """The scenario's initial model x^0 ``[size]``."""
        return self._own.initial

    def learner(self, method: Method, kept_models: KeptModels | None = None, *, peers: bool = False) -> MethodLearner:
        """A new learner for ``method``, at model version 0; ``kept_models`` selects additional values to keep.

        With ``peers`` each client has a model of its own.
        """
        adapted = self._adapted_to(method.objective)
        method = keeping_local(method, adapted.model.layout)
        parts = None if method.submodels is None else PartsOfModel(method.submodels, adapted.model)
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
            peers=peers,
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
        return engine if self._wrapper is None or not entry.alike else self._wrapper(engine, given, self._seed)

    def close(self) -> None:
        self._engines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
