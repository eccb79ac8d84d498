"""Check that batch norm can train on each client's last batch, before anything is trained."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from edgefl.data.sharding import Integers
from edgefl.errors import UserError
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.block_model import BlockModel, has_library_norms, takes_one_sample
from edgefl.simulation.work import batch_counts


def check_last_batches(model: BlockModel, options: Iterable[LocalOptions], samples: Integers) -> None:
    """Check that no client has a batch of one sample if the model cannot be trained with it.

    Args:
        model: the scenario's model.
        options: the local options of each method.
        samples: training samples of each client ``[clients]``.

    Raises:
        UserError: a client has; the message has its number, its samples and the remedy.
    """
    if not has_library_norms(model):
        return
    for local in options:
        alone = {size for size in np.unique(samples).tolist() if 1 in batch_counts(local, size)}
        clients = [client for client, size in enumerate(samples.tolist()) if size in alone]
        if clients and not takes_one_sample(model):
            raise UserError(_message(local, clients, samples), field="training.local")


def _message(local: LocalOptions, clients: list[int], samples: Integers) -> str:
    needs = "but the model's batch norm needs two or more to train"
    others = f", as {len(clients) - 1} other clients do" if len(clients) > 2 else ", as another client does"
    others = others if len(clients) > 1 else ""
    if local.batch == 1:
        return f"batch is 1, {needs}; set a larger batch"
    single = [client for client in clients if samples[client] == 1]
    if single:
        have = "client {} has" if len(single) == 1 else f"{len(single)} clients, such as client {{}}, have"
        return f"{have.format(single[0])} one sample, {needs}; divide the data so that each client has two or more"
    first = clients[0]
    return (
        f"client {first} trains its {samples[first]} samples in batches of {local.batch} and a last one of one sample"
        f"{others}, {needs}; set drop_last: true, which leaves out the last batch, or another batch"
    )
