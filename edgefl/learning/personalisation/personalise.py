"""Every client fits the final model to its own data, and is tested on its own part of the test set."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from edgefl.learning.data.federated import FederatedData
from edgefl.learning.engine.base import Engine, JobData, JobTask
from edgefl.learning.methods.recipe import Method
from edgefl.learning.models.block_model import BlockModel
from edgefl.learning.personalisation.accuracy import ClientAccuracy, accuracy_of_one, right_answers
from edgefl.learning.personalisation.calibration import CalibrationSpec, MaskedSgd

TOGETHER = 32
"""Clients trained in one call: no more local models than these are held at once."""

DISPATCH = 2**31
"""The dispatch number of a personalisation job: further than any run counts, so its batches are its own."""


def personalised_accuracy(
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
) -> ClientAccuracy:
    """Each client's accuracy after calibration, on its own part of the test set.

    A client without training data keeps the final model.

    Args:
        spec: how clients fit the model.
        method: whose final model it is; its local options hold for what ``spec`` leaves open.
        final: the final server model ``[size]``, where every client starts.
        round: rounds that were run.
        model: the skeleton that the method trains.
        data: the clients' data with ``test: partitioned``.
        jobs: the same data as jobs read it.
        engine: trains.
        seed: the run's seed; batches are the same for all methods.
    """
    shards = data.evaluation_shards
    if shards is None:
        raise ValueError("personalisation needs a test part for each client")
    mode = method.objective.evaluation_mode(model)
    right = accuracy_of_one(final, model, data.evaluation, shards, mode).right.copy()
    for tasks in _tasks(spec, method, final, round, model=model, jobs=jobs, seed=seed):
        for task, result in zip(tasks, engine.train(tasks), strict=True):
            answers = right_answers(result.final, model, data.evaluation, shards.shard(task.client), mode)
            right[task.client] = int(answers.sum())
    return ClientAccuracy(right, shards.sizes)


def _tasks(
    spec: CalibrationSpec, method: Method, final: Tensor, round: int, *, model: BlockModel, jobs: JobData, seed: int
) -> Iterator[list[JobTask]]:
    objective = spec.objective(method.objective.evaluation_mode(model))
    options = spec.options(method.local, round)
    parameters = final[: model.layout.parameter_count]
    trained = last_block(model, parameters)
    clients = [client for client in range(jobs.clients) if jobs.samples(client)]
    for start in range(0, len(clients), TOGETHER):
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
                start=final,
                frozen=dict.fromkeys(objective.frozen, final),
                vectors={"trained": trained, "received": parameters},
                facts={name: fact for name, fact in jobs.facts(client).items() if name in objective.client},
            )
            for client in clients[start : start + TOGETHER]
        ]


def last_block(model: BlockModel, parameters: Tensor) -> Tensor:
    """1 for each parameter of the last block, 0 for the others ``[parameter_count]``."""
    mask = torch.zeros_like(parameters)
    for entry in model.layout.parameters:
        if entry.block == model.depth - 1:
            mask[entry.start : entry.start + entry.numel] = 1
    return mask
