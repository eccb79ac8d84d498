"""What all methods of one scenario and seed share, so that they differ in their method alone."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from torch import Tensor

from edgefl.learning.data.federated import FederatedData
from edgefl.learning.engine.base import Engine, JobData, JobResult, JobTask
from edgefl.learning.engine.choice import build_engine, choose_engine
from edgefl.learning.engine.client_data import ClientData
from edgefl.learning.engine.learner import MethodLearner
from edgefl.learning.job import Evaluation
from edgefl.learning.methods.recipe import Method
from edgefl.learning.models.block_model import BlockModel
from edgefl.learning.models.registry import ModelSpec, build_model, initial_vector


class TrainingCore:
    """Data on the training device, one skeleton, one initial model, one engine; made into a learner per method.

    Used as a context manager, it closes its engine at the end.

    Args:
        data: the clients' data, on the training device.
        model: the skeleton, which the core takes over and moves to the initial model's device.
        initial: the initial model x^0 ``[size]`` of the seed, on the training device; see ``initial_vector``.
        engine: ``auto``, ``sequential`` or ``parallel``; see :func:`~edgefl.learning.engine.choice.choose_engine`.
        workers: jobs at once in the parallel engine; the process's cores unless given. It never changes a result.

    Attributes:
        engine_name: the engine that was chosen.

    Raises:
        UserError: there is no such engine, or not on that device.
    """

    def __init__(
        self, data: JobData, model: BlockModel, initial: Tensor, *, engine: str = "auto", workers: int | None = None
    ) -> None:
        device = initial.device
        self.engine_name = choose_engine(engine, device, workers)
        self.data = data
        self.model = model.to(device)
        self.initial = initial.detach().clone()
        engine_made = build_engine(self.engine_name, self.model, data, device, workers)
        self._engine = SharedEvaluation(engine_made, self.initial)

    @classmethod
    def of(
        cls, data: FederatedData, spec: ModelSpec, seed: int, *, engine: str = "auto", workers: int | None = None
    ) -> Self:
        """The core of a scenario's data and model for one seed; it trains on the device that holds the data."""
        model = build_model(spec, data.shape, data.classes)
        initial = initial_vector(model, seed).to(data.train.device)
        return cls(ClientData(data), model, initial, engine=engine, workers=workers)

    def learner(self, method: Method) -> MethodLearner:
        """A fresh learner of ``method``, at model version 0.

        Raises:
            ValueError: the method's parts do not fit together.
        """
        return MethodLearner(method, self.model, self.initial, self.data, self._engine)

    def close(self) -> None:
        """Let go of the engine's workers and memory."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SharedEvaluation:
    """An engine that evaluates the model that all methods begin with only once.

    Args:
        engine: what does the work.
        initial: the model that is shared, recognised by being the same object.
    """

    def __init__(self, engine: Engine, initial: Tensor) -> None:
        self._engine = engine
        self._initial = initial
        self._known: Evaluation | None = None

    def train(self, tasks: Sequence[JobTask]) -> list[JobResult]:
        """Train all jobs."""
        return self._engine.train(tasks)

    def evaluate(self, vector: Tensor) -> Evaluation:
        """Accuracy and mean cross-entropy on the evaluation split."""
        if vector is not self._initial:
            return self._engine.evaluate(vector)
        if self._known is None:
            self._known = self._engine.evaluate(vector)
        return self._known

    def close(self) -> None:
        """Let go of the engine's workers and memory."""
        self._engine.close()
