"""Call a listener of edgefl's caller so that it cannot change a run, and its errors are not mistaken for the run's."""

from __future__ import annotations

from copy import copy

from edgefl.errors import EdgeflError
from edgefl.record.events import Event
from edgefl.record.listener import Listener
from edgefl.record.rounds import RoundRow
from edgefl.record.summary import SeedResult


class ListenerError(EdgeflError):
    """An error of a listener, on its way to the caller.

    Args:
        error: what it raised.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Guarded(Listener):
    """Passes each call that the listener overrides on with copies.

    Args:
        listener: the caller's listener.

    Raises:
        ListenerError: it raised an error.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def began(self, runs: list[tuple[str, int]], rounds: int) -> None:
        """Pass it on."""
        self._call("began", list(runs), rounds)

    def advised(self, advice: str) -> None:
        """Pass it on."""
        self._call("advised", advice)

    def run_began(self, label: str, seed: int) -> None:
        """Pass it on."""
        self._call("run_began", label, seed)

    def events(self, rows: list[Event]) -> None:
        """Pass it on."""
        self._call("events", list(rows))

    def round_ended(self, row: RoundRow) -> None:
        """Pass it on."""
        self._call("round_ended", copy(row))

    def simulated(self, rounds: int) -> None:
        """Pass it on."""
        self._call("simulated", rounds)

    def run_ended(self, result: SeedResult) -> None:
        """Pass it on."""
        self._call("run_ended", result.model_copy(deep=True))

    def results_reused(self, seed: int, trained: int, found: int) -> None:
        """Pass it on."""
        self._call("results_reused", seed, trained, found)

    def _call(self, moment: str, *arguments: object) -> None:
        method = getattr(self._listener, moment)
        if getattr(method, "__func__", method) is getattr(Listener, moment):
            return
        try:
            method(*arguments)
        except Exception as error:
            raise ListenerError(error) from error
