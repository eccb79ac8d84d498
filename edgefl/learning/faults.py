"""What can go wrong while training; importable without torch, so that the world can tell the two apart."""

from __future__ import annotations

from edgefl.errors import EdgeflError


class Diverged(EdgeflError):  # noqa: N818  (an outcome of the method, not a mistake)
    """A method's numbers left the real line: its run ends here, the other methods go on.

    Args:
        method: the method's label.
        round: the round whose aggregation found it.
        reason: what is not finite, and whose (``"the loss of client 7"``).
    """

    def __init__(self, method: str, round: int, reason: str) -> None:
        self.method = method
        self.round = round
        self.reason = reason
        super().__init__(f"method '{method}' diverged in round {round}: {reason} is not finite")


class TrainingFault(EdgeflError):  # noqa: N818  (exit code 1 calls it a fault)
    """A local step raised an error; the original one is the cause.

    Args:
        method: the method's label.
        client: who trained.
        round: the round of the job.
        step: the local step that failed, from 0.
        reason: the original error in words.
    """

    def __init__(self, method: str, client: int, round: int, step: int, reason: str) -> None:
        self.method = method
        self.client = client
        self.round = round
        self.step = step
        super().__init__(f"method '{method}', client {client}, round {round}, local step {step}: {reason}")
