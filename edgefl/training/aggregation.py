"""The next model from the clients' updates: their weights, the server update, and the mean of all other numbers."""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from edgefl.methods.parts.arrivals import Arrival, Arrivals, RoundFacts
from edgefl.methods.parts.server import checked_update
from edgefl.methods.recipe import Method
from edgefl.models.layout import Layout
from edgefl.training.base import Outcome
from edgefl.training.faults import blaming
from edgefl.training.parts_of_models import LastBlocks, PartsOfModel


class Aggregation:
    """The computation of a model version from the latest one and the results that arrived.

    The method's server update computes the parameters. Buffers (batch norm's running statistics and counters) are
    averaged with the same weights; the papers' code does the same with all other entries of a model's state. So is the
    clients' local part, which only evaluations of the server's model read: it is not sent.
    """

    def __init__(self, method: Method, layout: Layout, clients: int, parts: PartsOfModel | None) -> None:
        self._method = method
        self._count = layout.parameter_count
        self._local = layout.local_parameters
        self._clients = clients
        self._parts = parts
        self._last_blocks = LastBlocks(layout) if method.objective.trains_last else None

    def next(  # noqa: PLR0917  (an aggregation is made of this many things)
        self,
        vector: Tensor,
        state: Mapping[str, Tensor],
        version: int,
        arrived: Sequence[Outcome],
        round: int,
        factors: Sequence[float] | None,
        mix: Literal["deltas", "models"],
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Version ``version + 1`` of the model ``[size]`` and its server state, from version ``version``."""
        count, server = self._count, self._method.server
        deltas = stacked([each.delta for each in arrived])
        moves = deltas if mix == "deltas" else torch.stack([self._move(each, vector) for each in arrived])
        weights = self._weights([each.samples for each in arrived])
        trained, coverage = self._parts or self._last_blocks, None
        if trained is not None:
            coverage = trained.share_of([each.part for each in arrived], deltas.new_tensor(weights))
        arrivals = [
            Arrival(
                client=each.client,
                rate=each.rate,
                steps=each.steps,
                weight=weight,
                version=each.version,
                age=version - each.version,
                factor=factor,
                loss=each.first_loss,
                received=each.received,
                uploads=each.others,
            )
            for each, weight, factor in zip(arrived, weights, factors or [1.0] * len(arrived), strict=True)
        ]
        whole = Arrivals(arrivals, deltas, moves, coverage)
        facts = RoundFacts(self._method.local.lr_at(round), self._clients, round)
        before, rest = vector[:count], slice(count, None)
        # Copies: clients, checkpoints and other methods may still read the current model and state.
        copies = {name: each.clone() for name, each in state.items()}
        with blaming(self._method.label, round, f"server update {type(server).__name__}"):
            answer = server.update(before.clone(), whole.at(slice(count)), copies, facts)
            parameters, state = checked_update(answer, before, server.broadcasts)
        if self._local:
            parameters = parameters.clone()
        for place in self._local:
            parameters[place] = before[place] + whole.at(place).mean()
        if count == len(vector):
            return parameters, state
        return torch.cat([parameters, vector[rest] + whole.at(rest).mean()]), state

    def _move(self, outcome: Outcome, vector: Tensor) -> Tensor:
        """The difference from the latest model; 0 in the part that the client did not train."""
        if self._parts is None:
            return outcome.final - vector
        own = self._parts.taken(outcome.final, *outcome.part)
        return self._parts.put_back(own, vector, *outcome.part) - vector

    def _weights(self, samples: Sequence[int]) -> list[float]:
        """Shares that sum to 1: equal, or proportional to the images that a pass uses."""
        local, counts = self._method.local, list(samples)
        if self._method.weighting == "uniform":
            counts = [1] * len(samples)
        elif local.drop_last:  # a client with less than one batch uses it
            counts = [each // local.batch * local.batch or each for each in samples]
        return [count / sum(counts) for count in counts]


def stacked(vectors: Sequence[Tensor]) -> Tensor:
    """Without a copy if they are already adjacent rows in memory."""
    first = vectors[0]
    memory, row = first.untyped_storage().data_ptr(), first.nbytes
    if all(
        vector.untyped_storage().data_ptr() == memory and vector.data_ptr() == first.data_ptr() + place * row
        for place, vector in enumerate(vectors)
    ):
        return first.as_strided((len(vectors), len(first)), (len(first), 1))
    return torch.stack(list(vectors))
