"""What can go wrong while training; importable without torch, so that the world can tell the two apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from edgefl.errors import EdgeflError, WrongAnswer, in_words


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

    @staticmethod
    def reason_in(message: str) -> str:
        """The reason that a message of this error gives.

        >>> Diverged.reason_in(str(Diverged("wild", 3, "the server model")))
        'the server model'
        """
        return message.partition(": ")[2].removesuffix(" is not finite")


class PartFault(EdgeflError):  # noqa: N818  (exit code 1 calls it a fault)
    """A part of a method or of its run raised an error; the original one is the cause. The other methods go on.

    Args:
        method: the method's label.
        round: the round in which it happened.
        part: what was at work (``"block scheduler"``).
        reason: the original error in words.

    Attributes:
        client: the client that it happened to, -1 for none.
    """

    client = -1

    def __init__(self, method: str, round: int, part: str, reason: str) -> None:
        # SimPy hands an error on as a copy, which it makes from these.
        super().__init__(method, round, part, reason)
        self.method = method
        self.round = round
        self.part = part
        self.reason = reason

    def __str__(self) -> str:
        return f"method '{self.method}', round {self.round}, {self.part}: {self.reason}"


@contextmanager
def blaming(method: str, round: int, part: str) -> Iterator[None]:
    """What a part raises inside, or returns wrongly, is its fault: the run of its method ends, the others go on.

    Every call of a part of a method goes through here. ``sys.exit`` and whatever else is no ``Exception`` are faults,
    too; Ctrl-C and edgefl's own errors pass.

    >>> with blaming("mine", 3, "block scheduler"):
    ...     [][0]
    Traceback (most recent call last):
    edgefl.learning.faults.PartFault: method 'mine', round 3, block scheduler: IndexError: list index out of range
    """
    try:
        yield
    except BaseException as error:
        passes = KeyboardInterrupt, EdgeflError
        if isinstance(error, passes) and not isinstance(error, WrongAnswer):
            raise
        raise PartFault(method, round, part, in_words(error)) from error


class TrainingFault(PartFault):
    """A local step raised an error; the original one is the cause.

    Args:
        method: the method's label.
        client: who trained.
        round: the round of the job.
        step: the local step that failed, from 0.
        reason: the original error in words.
    """

    def __init__(self, method: str, client: int, round: int, step: int, reason: str) -> None:
        super().__init__(method, round, f"client {client}, local step {step}", reason)
        self.args = (method, client, round, step, reason)
        self.client = client
        self.step = step

    def __str__(self) -> str:
        return (
            f"method '{self.method}', client {self.client}, round {self.round}, local step {self.step}: {self.reason}"
        )
