"""The final model's metric on each client: ``clients.parquet``, and its summary."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.methods.recipe import Method
from edgefl.record.rounds import ClientRow
from edgefl.record.summary import ClientResult
from edgefl.record.tables import write_clients
from edgefl.training.faults import blaming

if TYPE_CHECKING:
    from torch import Tensor

    from edgefl.data.federated import FederatedData
    from edgefl.training.core import TrainingCore
    from edgefl.training.personalisation.calibration import CalibrationSpec
    from edgefl.training.personalisation.client_metric import ClientMetric


def metric_of_clients(
    method: Method,
    final: Tensor,
    rounds: int,
    *,
    core: TrainingCore,
    data: FederatedData,
    seed: int,
    personalisation: CalibrationSpec | None,
    path: Path,
    own: Mapping[int, Tensor],
) -> dict[str, ClientResult]:
    """Test the final model on each client's own part, personalise it if the scenario requires it, and write the table.

    Args:
        method: the method of the final model.
        final: the model ``[size]``.
        rounds: rounds of the run.
        core: the run's skeleton and engine.
        data: the clients' data.
        seed: the run's seed.
        personalisation: how each client fits the model, if there is personalisation.
        path: the table's file.
        own: the clients' own parts of the model, by client; a client that never trained has the server's.

    Raises:
        PartFault: a part of the method raised an error.

    Returns:
        The summary's figures: ``clients``, and ``personalisation`` if there is one; empty unless the test set is
        partitioned.
    """
    if data.evaluation_shards is None:
        return {}
    from edgefl.training.personalisation.client_metric import metric_of_each, metric_of_one
    from edgefl.training.personalisation.personalise import personalised_metric

    def model_of(client: int) -> Tensor:
        return model.layout.with_local_part(final, own[client]) if client in own else final

    with blaming(method.label, max(rounds - 1, 0), "evaluation on each client"):
        model = method.objective.adapt(core.model).to(final.device)
        mode = method.objective.evaluation_mode(model)
        tests = data.evaluation, data.evaluation_shards, mode
        shared = metric_of_each(model_of, model, *tests) if own else metric_of_one(final, model, *tests)
    found = {"clients": ClientResult(**_figures(shared))}
    personal = None
    if personalisation is not None:
        engine = core.engine_for(model)
        try:
            with blaming(method.label, max(rounds - 1, 0), "personalisation"):
                personal = personalised_metric(
                    personalisation,
                    method,
                    final,
                    rounds,
                    model_of=model_of,
                    model=model,
                    data=data,
                    jobs=core.data,
                    engine=engine,
                    seed=seed,
                )
        finally:
            engine.close()
        found["personalisation"] = ClientResult(kind=personalisation.kind, **_figures(personal))
    figures = zip(data.sizes, shared.tested, shared.each, personal.each if personal else repeat(None), strict=False)
    is_accuracy = model.task.measured.is_accuracy
    rows = [ClientRow(client, *row, *(row[2:] if is_accuracy else (None, None))) for client, row in enumerate(figures)]
    write_clients(rows, path)
    return found


def _figures(metric: ClientMetric) -> dict[str, float]:
    return {"mean": metric.mean, "cumulative": metric.cumulative, "worst_tenth": metric.worst_tenth}
