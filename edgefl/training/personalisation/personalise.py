"""Fit the final model to each client's data and test it on the client's part of the test set."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from edgefl.data.federated import FederatedData
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.training.base import Engine, JobData, JobTask
from edgefl.training.personalisation.calibration import CalibrationSpec, MaskedSgd
from edgefl.training.personalisation.client_metric import ClientMetric, metric_of_one, scores_of

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
    jobs: JobData,
    engine: Engine,
    seed: int,
    model_of: Callable[[int], Tensor] | None = None,
) -> ClientMetric:
    """Each client's metric after calibration, on its own part of the test set.

    A client without training data keeps the final model.

    Args:
        spec: the options of calibration.
        method: the method of the final model; its local options apply unless ``spec`` overrides them.
        final: the final server model ``[size]``, from which every client starts.
        round: number of completed rounds.
        model: the skeleton that the method trains.
        data: the clients' data with ``test: partitioned``.
        jobs: the same data in the form that jobs read.
        engine: the training engine.
        seed: the run's seed; batches are the same for all methods.
        model_of: the model from which a client starts, if it is not ``final``.
    """
    shards = data.evaluation_shards
    if shards is None:
        raise ValueError("personalisation needs a test part for each client")
    mode = method.objective.evaluation_mode(model)
    sums = metric_of_one(final, model, data.evaluation, shards, mode).sums.copy()
    for tasks in _tasks(spec, method, final, round, model=model, jobs=jobs, seed=seed, model_of=model_of):
        for task, result in zip(tasks, engine.train(tasks), strict=True):
            sums[task.client] = scores_of(result.final, model, data.evaluation, shards.shard(task.client), mode).sum(
                axis=0
            )
    return ClientMetric(sums, shards.sizes, model.task)


def _tasks(
    spec: CalibrationSpec,
    method: Method,
    final: Tensor,
    round: int,
    *,
    model: BlockModel,
    jobs: JobData,
    seed: int,
    model_of: Callable[[int], Tensor] | None = None,
) -> Iterator[list[JobTask]]:
    objective = spec.objective(method.objective.evaluation_mode(model))
    options = spec.options(method.local, round)
    count = model.layout.parameter_count
    trained = last_block(model, final[:count])
    clients = [client for client in range(jobs.clients) if jobs.samples(client)]
    for place in range(0, len(clients), TOGETHER):
        together = clients[place : place + TOGETHER]
        first = {client: final if model_of is None else model_of(client) for client in together}
        yield [
            JobTask(
                method=method.label,
                seed=seed,
                client=client,
                round=round,
                dispatch=DISPATCH,
                objective=objective,
                rule=MaskedSgd(),
                options=options,
                lr=options.lr,
                steps=options.steps_for(jobs.samples(client)),
                alpha=model.depth,
                start=start,
                frozen=dict.fromkeys(objective.frozen, start),
                vectors={"trained": trained, "received": start[:count]},
                facts={name: fact for name, fact in jobs.facts(client).items() if name in objective.client},
            )
            for client, start in first.items()
        ]


def last_block(model: BlockModel, parameters: Tensor) -> Tensor:
    """1 for each parameter of the last block, 0 for the others ``[parameter_count]``."""
    mask = torch.zeros_like(parameters)
    for entry in model.layout.parameters:
        if entry.block == model.depth - 1:
            mask[entry.start : entry.start + entry.numel] = 1
    return mask
