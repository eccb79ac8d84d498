"""A learner that does not train: neutral numbers replace training results (``--no-train``)."""

from collections.abc import Sequence
from math import nan

from edgefl.training.job import Digests, Evaluation, Feedback, JobId, Mixing, TrainingJob


class NeutralLearner:
    """Implements the learner interface without a model; it has no state, so memory use does not grow.

    All losses are 0, so rules that compare them find no difference; distances are 1, so products with them keep the
    other factor. Accuracies are unknown, not zero.

    >>> NeutralLearner().evaluate(5)
    Evaluation(metric=nan, loss=nan, ensemble=nan, model='')
    """

    def submit(self, job: TrainingJob) -> None: ...

    def received(self, client: int, version: int) -> None: ...

    def discard(self, job: JobId) -> None: ...

    def aggregate(self, version: int, jobs: list[JobId], round: int, mixing: Mixing | None = None) -> int:
        return version + 1

    def digests(self, version: int) -> Digests | None:
        """There are no models."""

    def feedback(self, job: JobId) -> Feedback:
        return Feedback(loss=0.0, first_loss=0.0, distance=1.0, drift=0.0)

    def local_losses(self, version: int, clients: Sequence[int], images: int | None) -> list[float]:
        return [0.0] * len(clients)

    def evaluate(self, version: int) -> Evaluation:
        return Evaluation(metric=nan, loss=nan)
