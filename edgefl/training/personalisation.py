"""The metric of the final model on each client, and classifier calibration: its last block fitted to their data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, SerializeAsAny
from torch import Tensor

from edgefl.data.dataset import Dataset
from edgefl.data.federated import FederatedData
from edgefl.data.sharding import Integers, Shards
from edgefl.methods.fedadc_plus import SelfConfidence
from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.parts.client_state import State
from edgefl.methods.parts.local_step import Lr, Sgd
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.parts.step_options import StepOptions
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.layout import Weights
from edgefl.models.mode import using
from edgefl.options import Component
from edgefl.tasks.base import Task
from edgefl.training.engine_spec import Engine, exact_arithmetic
from edgefl.training.evaluation import PLAIN, outputs_of
from edgefl.training.job_task import ClientData, EvaluatedSamples, JobTask


@dataclass(frozen=True, slots=True, eq=False)
class ClientMetric:
    """The scores of a task on each client's test part."""

    sums: NDArray[np.float64]  # sums of the samples' scores [clients, numbers]
    tested: Integers  # number of samples of each client's part [clients]; may be 0
    task: Task

    @property
    def each(self) -> NDArray[np.float64]:
        """The metric of each client ``[clients]``, NaN for clients that have nothing to be tested on."""
        values = [self._value(row) if row.any() else np.nan for row in self.sums]
        return np.array(values, dtype=np.float64)

    @property
    def mean(self) -> float:
        """Mean over the clients that are tested, with equal weights."""
        return float(self._known.mean())

    @property
    def cumulative(self) -> float:
        """The metric of all samples together: clients are weighted by their samples."""
        return self._value(self.sums.sum(axis=0))

    @property
    def worst_tenth(self) -> float:
        """Mean over the tenth of the clients with the worst values, at least one client.

        >>> from edgefl.tasks.classification import Classification
        >>> right = np.stack([np.arange(20.0), np.full(20, 20.0)], axis=1)
        >>> ClientMetric(right, np.full(20, 20), Classification()).worst_tenth
        0.025
        """
        known = np.sort(self._known)
        if self.task.measured.better == "lower":
            known = known[::-1]
        return float(known[: max(1, round(len(known) / 10))].mean())

    @property
    def _known(self) -> NDArray[np.float64]:
        each = self.each
        return each[~np.isnan(each)]

    def _value(self, sums: NDArray[np.float64]) -> float:
        return self.task.measured.bounded(self.task.value(sums))


def scores_of(
    vector: Tensor, model: BlockModel, data: Dataset, indices: Integers, mode: Mapping[str, Any]
) -> NDArray[np.float64]:
    """The task's scores of the model ``vector`` ``[size]`` for each sample at ``indices`` ``[samples, numbers]``.

    Without any, the result has a row of zeros. ``mode`` contains the differences from :data:`PLAIN`.
    """
    places = torch.from_numpy(indices if len(indices) else np.zeros(1, dtype=np.int64))
    samples = EvaluatedSamples(data, places.to(data.store))
    weights = model.layout.frozen(*model.layout.split(vector.clone()))
    parts = []
    with exact_arithmetic(data.device), torch.no_grad(), using(**{**PLAIN, **mode}):
        for place in samples.evaluation():
            batch = samples.evaluation_batch(place)
            parts.append(model.task.scores(outputs_of(model, weights, batch.inputs, place.start), batch.labels))
    scores: NDArray[np.float64] = torch.cat(parts).cpu().numpy()
    return scores if len(indices) else np.zeros_like(scores)


def metric_of_each(
    models: Callable[[int], Tensor], model: BlockModel, data: Dataset, shards: Shards, mode: Mapping[str, Any]
) -> ClientMetric:
    """The metric of each client's own model on its part ``shards`` of ``data``; see :func:`scores_of`."""
    clients = range(len(shards.sizes))
    sums = [scores_of(models(client), model, data, shards.shard(client), mode).sum(axis=0) for client in clients]
    return ClientMetric(np.stack(sums), shards.sizes, model.task)


def metric_of_one(
    vector: Tensor, model: BlockModel, data: Dataset, shards: Shards, mode: Mapping[str, Any]
) -> ClientMetric:
    """The metric of one model on every client's part ``shards`` of ``data``; see :func:`scores_of`."""
    scores = scores_of(vector, model, data, shards.indices, mode)
    ends = zip(shards.offsets[:-1], shards.offsets[1:], strict=True)
    return ClientMetric(np.stack([scores[start:end].sum(axis=0) for start, end in ends]), shards.sizes, model.task)


class CalibrationSpec(Component):
    """Classifier calibration after the run (Ozfatura et al., Sec. IV-D): only the classifier is trained."""

    kind: Literal["calibration"] = Field(description="calibration: train the last block of the final model")
    epochs: int = Field(default=2, ge=1, description="passes over the client's own training data")
    lr: float | None = Field(
        default=None, gt=0, description="learning rate; null: that of the round after the last (the paper states none)"
    )
    proximal: float | None = Field(
        default=None, gt=0, description="weight μ of (μ/2)‖φ - φ_T‖² on the last block φ; null: no such term"
    )
    self_confidence: bool = Field(
        default=False, description="FedADC+'s self-confidence distillation from the final model in place of plain CE"
    )


class Calibration(Objective):
    """A loss of the last block only: all earlier blocks are a frozen feature extractor, in evaluation mode."""

    base: SerializeAsAny[Objective] = Field(default=CrossEntropy(), description="its loss, without the proximal term")
    proximal: float = Field(default=0.0, ge=0, description="weight μ of the proximal term on the last block")
    mode: dict[str, Any] = Field(default_factory=dict, description="differences of evaluation from a plain one")

    frozen = property(lambda self: self.base.frozen)
    vectors = property(lambda self: frozenset({"received"} if self.proximal else ()))
    client = property(lambda self: self.base.client)

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        *body, head = local
        held: Weights = (*({name: tensor.detach() for name, tensor in block.items()} for block in body), head)
        with using(training=False, track=False, **self.mode):
            total, cross_entropy = self.base.loss(held, batch, context)
        if self.proximal:
            final = context.model.layout.weights(context.vectors["received"])[-1]
            away = [(head[name] - tensor).square().sum() for name, tensor in final.items()]
            total = total + 0.5 * self.proximal * sum(away)
        return Loss(total, cross_entropy)


class MaskedSgd(Sgd):
    """SGD on the parameters where the vector ``trained`` is 1; the others do not change, even with weight decay."""

    vectors = frozenset({"trained"})

    def begin(self, received: Tensor, vectors: State, options: StepOptions, steps: int) -> State:
        return {**super().begin(received, vectors, options, steps), "trained": vectors["trained"]}

    def update(self, parameters: Tensor, gradient: Tensor, memory: State, options: StepOptions, lr: Lr) -> Tensor:
        before = parameters.clone()  # the step overwrites them
        stepped = super().update(parameters, gradient, memory, options, lr)
        return stepped.where(memory["trained"] > 0, before)


TOGETHER = 32
"""Number of clients trained in one call, which limits the number of local models in memory."""

DISPATCH = 2**31
"""The dispatch number of a personalisation job: larger than in any run, so its batches are different."""


def personalised_metric(
    spec: CalibrationSpec,
    method: Method,
    final: Tensor,
    round: int,
    *,
    model: BlockModel,
    data: FederatedData,
    jobs: ClientData,
    engine: Engine,
    seed: int,
    model_of: Callable[[int], Tensor] | None = None,
) -> ClientMetric:
    """Each client's metric after calibration, on its own part of the test set.

    A client without training data keeps the final model. The method's local options apply unless ``spec`` overrides
    them; batches are the same for all methods. ``final`` is the final server model ``[size]``, from which every client
    starts unless ``model_of`` gives it another; ``round`` is the number of completed rounds; ``data`` has ``test:
    partitioned``, and ``jobs`` is the same data in the form that jobs read.
    """
    shards = data.evaluation_shards
    assert shards is not None
    mode = method.objective.evaluation_mode(model)
    base = SelfConfidence() if spec.self_confidence else CrossEntropy()
    objective = Calibration(base=base, proximal=spec.proximal or 0.0, mode=dict(mode))
    lr = spec.lr if spec.lr is not None else method.local.lr_at(round)
    options = method.local.model_copy(update={"epochs": spec.epochs, "steps": None, "lr": lr, "lr_decay": 1.0})
    count = model.layout.parameter_count
    trained = last_block(model, final[:count])

    def task_of(client: int) -> JobTask:
        start = final if model_of is None else model_of(client)
        return JobTask(
            method=method.label,
            seed=seed,
            client=client,
            round=round,
            dispatch=DISPATCH,
            objective=objective,
            rule=MaskedSgd(),
            options=options,
            lr=lr,
            steps=options.steps_for(jobs.samples(client)),
            alpha=model.depth,
            start=start,
            frozen=dict.fromkeys(objective.frozen, start),
            vectors={"trained": trained, "received": start[:count]},
            facts={name: fact for name, fact in jobs.facts(client).items() if name in objective.client},
        )

    sums = metric_of_one(final, model, data.evaluation, shards, mode).sums.copy()
    clients = [client for client in range(jobs.clients) if jobs.samples(client)]
    for place in range(0, len(clients), TOGETHER):
        tasks = [task_of(client) for client in clients[place : place + TOGETHER]]
        for task, result in zip(tasks, engine.train(tasks), strict=True):
            own = scores_of(result.final, model, data.evaluation, shards.shard(task.client), mode)
            sums[task.client] = own.sum(axis=0)
    return ClientMetric(sums, shards.sizes, model.task)


def last_block(model: BlockModel, parameters: Tensor) -> Tensor:
    """1 for each parameter of the last block, 0 for the others ``[parameter_count]``."""
    mask = torch.zeros_like(parameters)
    mask[model.layout.before(model.depth - 1)[0] :] = 1
    return mask
