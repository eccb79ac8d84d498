"""The inputs of jobs that train a part of the model, chosen by their capacity level."""

from __future__ import annotations

from torch import Tensor

from edgefl.training.client_states import State
from edgefl.training.job import TrainingJob
from edgefl.training.job_inputs import JobInputs, JobResolver, Received
from edgefl.training.parts_of_models import PartsOfModel


class InputsByLevel:
    """Resolves jobs as a :class:`~edgefl.training.job_inputs.JobResolver` does, each for its part of the model.

    Args:
        whole: resolves jobs of the whole model.
        parts: the parts that clients train.
    """

    def __init__(self, whole: JobResolver, parts: PartsOfModel) -> None:
        self._whole = whole
        self._parts = parts
        self._of_levels: dict[int, JobResolver] = {}

    def resolve(
        self, job: TrainingJob, received: Received, state: State | None, front: Tensor | None = None
    ) -> JobInputs:
        """The job's inputs; clients that train parts keep no state, receive no broadcasts and have no front blocks."""
        if job.level not in self._of_levels:
            self._of_levels[job.level] = self._whole.of_part(self._parts.of(job.level).model.layout)
        part = Received(self._parts.taken(received.vector, job.level, job.round), {})
        return self._of_levels[job.level].resolve(job, part, None)
