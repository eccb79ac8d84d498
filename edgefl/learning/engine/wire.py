"""Between server and clients: what a method's codecs make of the numbers that travel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from edgefl.learning.client_state import ClientState
from edgefl.learning.codecs.by_tensor import transmitted
from edgefl.learning.engine.base import JobTask
from edgefl.learning.engine.client_states import State
from edgefl.learning.engine.lent import lent_unwritten
from edgefl.learning.faults import blaming
from edgefl.learning.job import TrainingJob
from edgefl.learning.methods.recipe import Method
from edgefl.learning.models.layout import Layout
from edgefl.learning.payload import ModelSizes, checked_parts
from edgefl.randomness import generator


class Upload(NamedTuple):
    """What the server has of a job's result.

    Attributes:
        final: the local model as the server sees it ``[size]``.
        delta: how far it lies from the model that was sent ``[size]``; ``None``: it is the difference.
        others: what else was sent ``[parameter_count]``, by the part's name.
        state: what the client keeps, ``None`` for stateless methods.
    """

    final: Tensor
    delta: Tensor | None
    others: Mapping[str, Tensor]
    state: State | None


class Wire:
    """Encodes and decodes a method's traffic; with codecs that round nothing it hands everything on as it is.

    Random choices are keyed by what is sent, by whom and when, so they depend on neither engine nor order, and all
    methods meet the same. A version's downlink is encoded once: all its clients receive the same numbers.

    Args:
        method: whose traffic.
        layout: the model's layout.
        seed: the run's seed.
    """

    def __init__(self, method: Method, layout: Layout, seed: int) -> None:
        self._method = method
        self._layout = layout
        self._seed = seed
        self._up, self._down = method.codecs.up, method.codecs.down
        self._server_state: ClientState | None = method.server.client_state()
        self._uplink_parts = {part.name for part in checked_parts(method.payload.uplink(ModelSizes((1,))))}

    @property
    def exact_down(self) -> bool:
        """Whether clients receive what the server sends, to the bit."""
        return self._down.exact

    def down(self, part: str, parameters: Tensor, version: int) -> Tensor:
        """What clients receive of a vector of model version ``version``; one that is not like a model goes exactly."""
        if len(parameters) != self._layout.parameter_count:
            return parameters
        numbers = generator(self._seed, "codec down", version, part)
        with blaming(self._method.label, version, f"codec {type(self._down).__name__}"):
            return transmitted(self._down, parameters, self._layout, numbers)

    def up(self, job: TrainingJob, part: str, parameters: Tensor) -> Tensor:
        """What the server receives of a client's vector."""
        id = job.id
        numbers = generator(id.seed, "codec up", id.client, id.dispatch, part)
        with blaming(self._method.label, job.round, f"codec {type(self._up).__name__}"):
            return transmitted(self._up, parameters, self._layout, numbers)

    def upload(
        self, job: TrainingJob, task: JobTask, final: Tensor, sent: Tensor, known: State, *, arrives: bool
    ) -> Upload:
        """What becomes of a trained model, at the server and in the client's state.

        What travels is the change from what the server sent last of each block, which both ends know, and with error
        feedback what was left out before. A client that begins a block from its own weights still has in them what it
        left out there, and adds nothing. Of an upload that never arrives everything is left out.

        Args:
            job: the job.
            task: what it was trained from.
            final: the local model ``[size]``.
            sent: what the server sent for the job's version ``[size]``.
            known: the client's vectors before, and what the server broadcast, by name.
            arrives: whether the server will have it.
        """
        if self._up.exact:
            return Upload(final, None, {}, self._state(task, final, known, job.steps))
        count, partial = self._layout.parameter_count, task.alpha < len(self._layout.block_names)
        first = len(self._layout.block_names) - task.alpha
        reference = self._layout.splice(known["reference"], sent, first) if partial else sent
        change = final - reference
        meant = change[:count]
        if self._up.remembers:
            meant = meant + (self._of_received(known["unsent"], first) if partial else known["unsent"])
        arrived = self.up(job, "update", meant)
        known = {**known, "reference": reference, "unsent": meant - arrived if arrives else meant}
        # Buffers travel as they are; see encoded_sizes.
        delta = torch.cat([arrived, change[count:]])
        seen = reference + delta
        state = self._state(task, final, known, job.steps)
        others: Mapping[str, Tensor] = {}
        if state is not None and self._server_state is not None:
            agreed, others = self._agreed(job, task, seen, state, known)
            state = {**state, **agreed}
        return Upload(seen, seen - sent if partial else delta, others, state)

    def _state(self, task: JobTask, final: Tensor, known: State, steps: int) -> State | None:
        state = self._method.state
        return None if state is None else _after(state, task, final, known, steps)

    def _agreed(
        self, job: TrainingJob, task: JobTask, seen: Tensor, exact: State, known: State
    ) -> tuple[State, dict[str, Tensor]]:
        """The part of the client's state that must match the server's, from the numbers that the server has.

        Either it follows from the update as it arrived or, where its change travels in a part of its own, from that.
        """
        assert self._server_state is not None
        agreed = _after(self._server_state, task, seen, known, job.steps)
        others = {}
        for part, vector in self._server_state.uploads.items():
            if part in self._uplink_parts:
                others[part] = self.up(job, part, exact[vector] - known[vector])
                agreed[vector] = known[vector] + others[part]
        return agreed, others

    def _of_received(self, unsent: Tensor, first: int) -> Tensor:
        """The blocks from ``first`` on (0-based), zeros in front of them."""
        kept = unsent.clone()
        for entry in self._layout.parameters:
            if entry.block < first:
                kept[entry.start : entry.start + entry.numel] = 0
        return kept


def _after(state: ClientState, task: JobTask, final: Tensor, known: State, steps: int) -> dict[str, Tensor]:
    """The client's state after a job; the server and other clients hold what it is made of."""
    lent = {f"vectors['{name}']": vector for name, vector in known.items()}
    with lent_unwritten({"the received model": task.start, "the trained model": final, **lent}):
        return state.after(known, task.start, final, task.lr, steps)
