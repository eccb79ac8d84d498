"""When an attempt to transfer something breaks, and how it is repeated: ``network.transport.timeouts``."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from edgefl.options import Options
from edgefl.randomness import generator
from edgefl.units import Bytes, Seconds


class Timeouts(Options):
    """Time-outs of transfers, and what follows when one expires.

    A transfer consists of one or more *attempts*. An attempt breaks when a time-out expires; after a wait, another one
    begins, until one is complete or the last one has broken, when the transfer has failed. The waits are those of gRPC
    (its "Connection Backoff Protocol": 1 s, times 1.6 each, at most 120 s, and at random up to 20 % more or less), and
    five attempts are the most that its retry policy allows (gRFC A6). ``resume: ranges`` is HTTP's range requests (RFC
    9110, section 14).

    >>> timeouts = Timeouts(connection="10 s", jitter=0, longest_wait="2 s")
    >>> [round(timeouts.wait(number), 2) for number in (1, 2, 3)]
    [1.0, 1.6, 2.0]
    """

    model_config = ConfigDict(allow_inf_nan=False)

    connection: Annotated[Seconds, Field(gt=0)] | None = Field(
        None,
        description="An attempt breaks when no byte has moved for this long: before the first byte, or in an outage of"
        " a link of its path; null: never.",
    )
    transfer: Annotated[Seconds, Field(gt=0)] | None = Field(
        None, description="An attempt breaks when it is not complete after this long; null: never."
    )
    retries: int = Field(
        4, ge=0, le=1000, description="Attempts after the first one; when the last one breaks, it has failed."
    )
    first_wait: Seconds = Field(1.0, ge=0, description="The wait before the second attempt.")
    factor: float = Field(1.6, ge=1, description="Each further wait is this multiple of the one before.")
    longest_wait: Seconds = Field(120.0, ge=0, description="The most that a wait may be, before its jitter.")
    jitter: float = Field(
        0.2, ge=0, le=1, description="Each wait is drawn uniformly from 1 - jitter to 1 + jitter times its length."
    )
    resume: Literal["none", "ranges"] = Field(
        "none", description="none: another attempt sends everything again; ranges: only what has not been delivered."
    )
    chunk: Annotated[Bytes, Field(ge=1)] | None = Field(
        None, description="ranges only: only whole chunks of this many bytes are kept; null: every byte."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.connection is None and self.transfer is None:
            raise ValueError("expected a time-out, connection or transfer or both, found neither")
        if self.longest_wait < self.first_wait:
            raise ValueError(
                f"expected first_wait at most longest_wait, found {self.first_wait:g} s and {self.longest_wait:g} s"
            )
        if self.chunk is not None and self.resume == "none":
            raise ValueError("chunk: expected null, because resume is none, so nothing is kept")
        if self.chunk is not None and self.chunk != int(self.chunk):
            raise ValueError(f"chunk: expected a whole number of bytes, found {self.chunk:g}")
        return self

    def kept(self, delivered: int) -> int:
        """The number of the first ``delivered`` bytes of a transfer that need not be sent again.

        >>> Timeouts(transfer="1 min", resume="ranges", chunk="1 kB").kept(2999)
        2000
        """
        if self.resume == "none":
            return 0
        return delivered if self.chunk is None else delivered - delivered % int(self.chunk)

    def wait(self, number: int, draw: float = 0.5) -> float:
        """Seconds between the break number ``number`` (from 1) of a transfer and its next attempt.

        ``draw`` is a random number in [0, 1); 0.5 for no deviation.
        """
        try:
            seconds = min(self.first_wait * self.factor ** (number - 1), self.longest_wait)
        except OverflowError:  # of the power
            seconds = self.longest_wait if self.first_wait else 0.0
        return seconds * (1.0 + self.jitter * (2.0 * draw - 1.0))

    def drawn_wait(self, number: int, seed: int, *place: int | str) -> float:
        """:meth:`wait` with a draw keyed by its place, so that the order of breaks does not matter."""
        if not self.jitter:
            return self.wait(number)
        return self.wait(number, float(generator(seed, "back-off", *place).random()))
