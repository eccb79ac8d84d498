"""Resolve a job to a task: its client's data, the model it starts from, and what its method reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_part import OWN
from edgefl.methods.parts.objective import Objective
from edgefl.methods.recipe import Method
from edgefl.models.layout import Layout
from edgefl.training.job import TrainingJob
from edgefl.training.job_task import ClientData, JobTask
from edgefl.training.kept_states import State
from edgefl.training.parts_of_models import PartsOfModel


@dataclass(frozen=True, slots=True, eq=False)
class Received:
    """What the server sent for one version: the model ``[size]``, and the broadcasts ``[parameter_count]`` by name.

    Of peers the model is ``[peers, size]``.
    """

    vector: Tensor
    broadcasts: Mapping[str, Tensor]

    def of(self, client: int) -> Received:
        """What the client has of it: of the models of peers ``[peers, size]`` its own."""
        return self if self.vector.dim() == 1 else Received(self.vector[client].clone(), self.broadcasts)


class JobInputs(NamedTuple):
    """A job's task, and the vectors for computing the client's next state: its state and the server's broadcasts."""

    task: JobTask
    vectors: State


@dataclass(eq=False)
class JobResolver:
    """Resolves the inputs of one method's jobs."""

    method: Method
    layout: Layout
    initial: Tensor  # the initial model x^0 [size]
    data: ClientData
    parts: PartsOfModel | None = None
    _completed: tuple[Tensor, Tensor, Tensor] | None = None
    _options: dict[tuple[int, int], LocalOptions] = field(default_factory=dict)

    def resolve(
        self, job: TrainingJob, received: Received, state: State | None, front: Tensor | None = None
    ) -> JobInputs:
        """The job's inputs.

        ``state`` is that after ``job.previous``, ``front`` the model ``job.front`` ``[size]``, if there are any.
        """
        method, layout = self.method, self.layout
        vectors = method.objective.vectors | method.rule.vectors
        if self.parts is not None:
            # Clients that train parts keep no state, receive no broadcasts and have no front blocks.
            layout = self.parts.of(job.level).model.layout
            received, state = Received(self.parts.taken(received.vector, job.level, job.round), {}), None
        start = self._start(job, received.vector, state, front)
        if layout.local:
            # A client that has not trained has the initial model's local part, which all clients share.
            own = layout.local_part(self.initial) if state is None else state[OWN]
            start = layout.with_local_part(start, own)
        if method.state is not None and state is None:
            state = method.state.first(start, layout.parameter_count)
        known = {"received": start, **received.broadcasts, **(state or {})}
        task = JobTask(
            method=method.label,
            seed=job.id.seed,
            client=job.id.client,
            round=job.round,
            dispatch=job.id.dispatch,
            objective=self._objective(job.id.client),
            rule=method.rule,
            options=self._options_for(layout, job),
            lr=method.local.lr_at(job.round),
            rates=method.local.lr_of_steps(job.round, job.steps),
            steps=job.steps,
            alpha=job.alpha,
            start=start,
            frozen={name: self._whole(name, known[name], start, layout) for name in sorted(method.objective.frozen)},
            vectors={name: _first(known[name], layout.parameter_count) for name in sorted(vectors)},
            facts=self._facts(job.id.client, job.round),
            level=job.level,
        )
        return JobInputs(task, {**received.broadcasts, **(state or {})})

    def _objective(self, client: int) -> Objective:
        base, private = self.method.objective, self.method.private
        return base if private is None else private.objective(base, self.data.samples(client))

    def _options_for(self, layout: Layout, job: TrainingJob) -> LocalOptions:
        """The same object for all jobs that train the same part of the model."""
        first = len(self.layout.block_names) - job.alpha if self.method.objective.trains_last else 0
        if (first, job.level) not in self._options:
            self._options[first, job.level] = self.method.local.on(layout, first)
        return self._options[first, job.level]

    def _start(self, job: TrainingJob, received: Tensor, state: State | None, front: Tensor | None) -> Tensor:
        """If only the last alpha blocks were received, those in front are the client's own."""
        depth = len(self.layout.block_names)
        if job.alpha >= depth or self.method.objective.trains_last:
            return received
        if self.method.state is None or "previous" not in self.method.state.vectors:
            raise ValueError(
                f"method '{self.method.label}' received {job.alpha} of {depth} blocks, "
                "but its clients keep no model to build on"
            )
        # A client that has never received a whole model has the initial one, which all clients share.
        own = front if front is not None else self.initial if state is None else state["previous"]
        return self.layout.splice(own, received, depth - job.alpha)

    def _whole(self, name: str, vector: Tensor, start: Tensor, layout: Layout) -> Tensor:
        """If it has only parameters, the local model's buffers are appended."""
        if len(vector) == layout.size:
            return vector
        if len(vector) != layout.parameter_count:
            raise ValueError(
                f"the frozen copy '{name}' has {len(vector)} numbers; expected the model's {layout.parameter_count} "
                f"parameters, or all of its {layout.size} numbers"
            )
        # One tensor for all clients of a version, so that engines store it once.
        if self._completed is None or self._completed[0] is not vector or self._completed[1] is not start:
            self._completed = vector, start, torch.cat([vector, start[layout.parameter_count :]])
        return self._completed[2]

    def _facts(self, client: int, round: int) -> dict[str, Tensor]:
        names = self.method.objective.client
        if not names:
            return {}
        facts = {**self.data.facts(client), "round": torch.tensor(round, device=self.initial.device)}
        return {name: facts[name] for name in sorted(names)}


def _first(vector: Tensor, count: int) -> Tensor:
    """The vector itself if it has no more, so that it is sent once under both names."""
    return vector if len(vector) == count else vector[:count]
