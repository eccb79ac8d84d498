"""Errors during training; importable without torch, so that the simulation can distinguish them."""

from collections.abc import Iterator
from contextlib import contextmanager

from edgefl.errors import EdgeflError, WrongAnswer, in_words


class Diverged(EdgeflError):  # noqa: N818  (an outcome of the method, not a mistake)
    """A method's run ends: a number (``"the loss of client 7"``) is no longer finite. The others continue."""

    def __init__(self, method: str, round: int, reason: str) -> None:
        self.method = method
        self.round = round
        self.reason = reason
        super().__init__(f"method '{method}' diverged in round {round + 1}: {reason} is not finite")

    @staticmethod
    def reason_in(message: str) -> str:
        return message.partition(": ")[2].removesuffix(" is not finite")


class NotTrained(EdgeflError):  # noqa: N818  (an outcome of the run, not a mistake)
    """A run with recorded training needs a result that is not recorded, so it ends; the message says why."""


class PartFault(EdgeflError):  # noqa: N818  (exit code 1 calls it a fault)
    """A part of a method or of its run (``"block scheduler"``) raised an error, which is the cause.

    The other methods continue. ``client`` is the affected client, -1 for none.
    """

    client = -1

    def __init__(self, method: str, round: int, part: str, reason: str) -> None:
        # SimPy passes on a copy of an error, which it creates from these arguments.
        super().__init__(method, round, part, reason)
        self.method = method
        self.round = round
        self.part = part
        self.reason = reason

    def __str__(self) -> str:
        return f"method '{self.method}', round {self.round + 1}, {self.part}: {self.reason}"


@contextmanager
def blaming(method: str, round: int, part: str) -> Iterator[None]:
    """Convert an error of a part within the block to a fault: the run of its method ends, the others continue.

    Ctrl-C and edgefl's own errors are passed on; ``sys.exit`` is a fault.

    >>> with blaming("mine", 3, "block scheduler"):
    ...     [][0]
    Traceback (most recent call last):
    edgefl.training.faults.PartFault: method 'mine', round 4, block scheduler: IndexError: list index out of range
    """
    try:
        yield
    except BaseException as error:
        passes = KeyboardInterrupt, EdgeflError
        if isinstance(error, passes) and not isinstance(error, WrongAnswer):
            raise
        raise PartFault(method, round, part, in_words(error)) from error


class TrainingFault(PartFault):
    """A local step (counted from 0) raised an error, which is the cause."""

    def __init__(self, method: str, client: int, round: int, step: int, reason: str) -> None:
        super().__init__(method, round, f"client {client}, local step {step + 1}", reason)
        self.args = (method, client, round, step, reason)
        self.client = client
        self.step = step

    def __str__(self) -> str:
        place = f"client {self.client}, round {self.round + 1}, local step {self.step + 1}"
        return f"method '{self.method}', {place}: {self.reason}"
