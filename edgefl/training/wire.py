"""The traffic between server and clients: a method's codecs encode and decode the numbers that are sent."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from edgefl.methods.codecs.by_tensor import transmitted
from edgefl.methods.parts.client_state import ClientState
from edgefl.methods.parts.payload import ModelSizes, checked_parts
from edgefl.methods.recipe import Method
from edgefl.models.layout import Layout
from edgefl.randomness import generator
from edgefl.training.faults import blaming
from edgefl.training.job import TrainingJob
from edgefl.training.job_task import JobTask
from edgefl.training.kept_states import State


class Upload(NamedTuple):
    """A job's result after the upload."""

    final: Tensor  # the local model [size] as the server decodes it
    delta: Tensor  # its difference from the model that was sent [size]
    others: Mapping[str, Tensor]  # other sent vectors [parameter_count], by the part's name
    state: State | None  # the client's new state, None for stateless methods


class Wire:
    """Encodes and decodes a method's traffic; only codecs that round need it.

    Random choices are keyed by part, and by version (downlink) or job (uplink), so they depend on neither engine nor
    order, and are the same for all methods. A version's downlink is encoded once: all its clients receive the same
    numbers.
    """

    def __init__(self, method: Method, layout: Layout, seed: int) -> None:
        self._method = method
        self._layout = layout
        self.seed = seed
        self._up, self._down = method.codecs.up, method.codecs.down
        # Whether the server, and clients, receive exactly the bits that are sent: then nothing else of this is needed.
        self.exact_up, self.exact_down = self._up.exact, self._down.exact
        self._server_state: ClientState | None = method.server.client_state()
        self._uplink_parts = {part.name for part in checked_parts(method.payload.uplink(ModelSizes((1,))))}

    def down(self, part: str, parameters: Tensor, version: int) -> Tensor:
        """A vector of a model version as clients receive it; vectors not shaped like a model are sent exactly."""
        if len(parameters) != self._layout.parameter_count:
            return parameters
        numbers = generator(self.seed, "codec down", version, part)
        with blaming(self._method.label, version, f"codec {type(self._down).__name__}"):
            return transmitted(self._down, parameters, self._layout, numbers)

    def up(self, job: TrainingJob, part: str, parameters: Tensor) -> Tensor:
        """A client's vector as the server receives it."""
        id = job.id
        numbers = generator(id.seed, "codec up", id.client, id.dispatch, part)
        with blaming(self._method.label, job.round, f"codec {type(self._up).__name__}"):
            return transmitted(self._up, parameters, self._layout, numbers)

    def upload(
        self, job: TrainingJob, task: JobTask, final: Tensor, sent: Tensor, known: State, *, arrives: bool
    ) -> Upload:
        """The result of sending a trained model: at the server and in the client's state.

        The client sends the change from the server's last version of each block, which both sides have, plus, with
        error feedback, the residual of earlier uploads. For a block that started from the client's own weights, these
        weights still contain the residual, so nothing is added; neither is anything for the client's local part. If the
        upload never arrives, everything else becomes residual.

        ``final`` is the local model ``[size]``, ``sent`` the one that the server sent for the job's version; ``known``
        has the client's previous vectors and the server's broadcasts, by name.
        """
        count, partial = self._layout.parameter_count, task.alpha < len(self._layout.block_names)
        first = len(self._layout.block_names) - task.alpha
        reference = self._layout.splice(known["reference"], sent, first) if partial else sent
        change = final - reference
        meant = change[:count]
        if self._up.remembers:
            unsent = known["unsent"].clone()
            unsent[: self._layout.before(first)[0]] = 0
            meant = meant + unsent
        arrived = self.up(job, "update", meant)
        unsent = meant - arrived if arrives else meant.clone()
        for place in self._layout.local_parameters:
            unsent[place] = 0
        known = {**known, "reference": reference, "unsent": unsent}
        # Buffers are sent unencoded; see encoded_sizes.
        delta = torch.cat([arrived, change[count:]])
        seen = reference + delta
        kept = self._method.state
        state = None if kept is None else kept.after(dict(known), task.start, final, task.lr, job.steps)
        others: dict[str, Tensor] = {}
        if state is not None and self._server_state is not None:
            agreed, others = self._agreed(job, task, seen, state, known)
            state = {**state, **agreed}
        return Upload(seen, seen - sent if partial else delta, others, state)

    def _agreed(
        self, job: TrainingJob, task: JobTask, seen: Tensor, exact: State, known: State
    ) -> tuple[State, dict[str, Tensor]]:
        """The part of the client's state that must match the server's, computed from the numbers as received."""
        assert self._server_state is not None
        agreed = dict(self._server_state.after(dict(known), task.start, seen, task.lr, job.steps))
        others = {}
        for part, vector in self._server_state.uploads.items():
            if part in self._uplink_parts:
                others[part] = self.up(job, part, exact[vector] - known[vector])
                agreed[vector] = known[vector] + others[part]
        return agreed, others
