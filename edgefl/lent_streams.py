"""Standard streams that the code of plug-ins can use, but not close."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

NAMES = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")


class LentStream:
    """A stream that ignores ``close``; everything else is the stream's own.

    Args:
        stream: the stream.
        name: its name in ``sys``, by which a pickle finds the stream of the process that reads it.
    """

    def __init__(self, stream: Any, name: str = "") -> None:
        self._stream = stream
        self._name = name

    def close(self) -> None:
        """Write what is buffered; the stream stays open."""
        with suppress(OSError, ValueError):
            self._stream.flush()

    @property
    def buffer(self) -> LentStream:
        """The stream of bytes below, lent too."""
        return type(self)(self._stream.buffer)

    def detach(self) -> LentStream:
        """The stream of bytes below; this stream stays usable."""
        self.close()
        return self.buffer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._stream)

    def __enter__(self) -> LentStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return getattr, (sys, self._name)


@contextmanager
def streams_lent() -> Iterator[None]:
    """Let the block use the standard streams without closing them; afterwards restore the caller's streams."""
    before = {name: getattr(sys, name) for name in NAMES}
    for name, stream in before.items():
        if stream is not None and not isinstance(stream, LentStream):
            setattr(sys, name, LentStream(stream, name))
    try:
        yield
    finally:
        for name, stream in before.items():
            setattr(sys, name, stream)
