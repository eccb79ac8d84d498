"""The final model's accuracy on each client: ``clients.parquet``, and its summary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from edgefl.methods.recipe import Method
from edgefl.record.columns import column
from edgefl.record.summary import ClientResult
from edgefl.record.tables import write_parquet
from edgefl.training.faults import blaming

if TYPE_CHECKING:
    from torch import Tensor

    from edgefl.data.federated import FederatedData
    from edgefl.training.core import TrainingCore
    from edgefl.training.personalisation.accuracy import ClientAccuracy
    from edgefl.training.personalisation.calibration import CalibrationSpec

CLIENTS = pa.schema(
    [
        column("client", pa.int32(), "", "the client's number"),
        column("samples", pa.int64(), "", "training images of the client"),
        column("tested", pa.int64(), "", "test images of the client"),
        column("accuracy", pa.float64(), "", "of the final model on them, in [0, 1]; null where there are none"),
        column("accuracy_personalised", pa.float64(), "", "after personalisation; null without it"),
    ]
)
"""Columns of ``clients.parquet``."""


def accuracy_of_clients(
    method: Method,
    final: Tensor,
    rounds: int,
    *,
    core: TrainingCore,
    data: FederatedData,
    seed: int,
    personalisation: CalibrationSpec | None,
    path: Path,
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

    Raises:
        PartFault: a part of the method raised an error.

    Returns:
        The summary's figures: ``clients``, and ``personalisation`` if there is one; empty unless the test set is
        partitioned.
    """
    if data.evaluation_shards is None:
        return {}
    from edgefl.training.personalisation.accuracy import accuracy_of_one
    from edgefl.training.personalisation.personalise import personalised_accuracy

    with blaming(method.label, max(rounds - 1, 0), "evaluation on each client"):
        model = method.objective.adapt(core.model).to(final.device)
        mode = method.objective.evaluation_mode(model)
        shared = accuracy_of_one(final, model, data.evaluation, data.evaluation_shards, mode)
    found = {"clients": ClientResult(**_figures(shared))}
    personal = None
    if personalisation is not None:
        engine = core.engine_for(model)
        try:
            with blaming(method.label, max(rounds - 1, 0), "personalisation"):
                personal = personalised_accuracy(
                    personalisation,
                    method,
                    final,
                    rounds,
                    model=model,
                    data=data,
                    jobs=core.data,
                    engine=engine,
                    seed=seed,
                )
        finally:
            engine.close()
        found["personalisation"] = ClientResult(kind=personalisation.kind, **_figures(personal))
    _write(data, shared, personal, path)
    return found


def _figures(accuracy: ClientAccuracy) -> dict[str, float]:
    return {"mean": accuracy.mean, "cumulative": accuracy.cumulative, "worst_tenth": accuracy.worst_tenth}


def _write(data: FederatedData, shared: ClientAccuracy, personal: ClientAccuracy | None, path: Path) -> None:
    columns = [
        list(range(data.clients)),
        data.sizes,
        shared.images,
        shared.each,
        [None] * data.clients if personal is None else personal.each,
    ]
    arrays = [pa.array(values, field.type, from_pandas=True) for field, values in zip(CLIENTS, columns, strict=True)]
    write_parquet(pa.Table.from_arrays(arrays, schema=CLIENTS), path, compression="zstd")
