"""Progress reports of runs."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the progress of runs. It may print, and must not change what the runs compute."""

    def begin(self, runs: list[tuple[str, int]], rounds: int) -> None:
        """Called with the runs to execute as (method label, seed), each of at most ``rounds`` rounds."""

    def round(self, label: str, seed: int, round: int, seconds: float, accuracy: float | None) -> None:
        """Called when round ``round`` (from 1) of a run has ended.

        Args:
            label: the method's label.
            seed: the run's seed.
            round: the number of completed rounds.
            seconds: virtual seconds since the run's start.
            accuracy: in [0, 1], or ``None`` if this round was not evaluated.
        """

    def end(self, label: str, seed: int, reason: str) -> None:
        """Called when a run has ended; ``reason`` is its stop reason in ``summary.json`` (``rounds``, ``target``…)."""

    def shared(self, seed: int, trained: int, found: int) -> None:
        """Called when all methods of a seed have ended, with the numbers of trained and of cached jobs."""

    def close(self) -> None:
        """Called after everything else, also after an error."""


class Silent:
    """Reports nothing."""

    def begin(self, runs: list[tuple[str, int]], rounds: int) -> None:
        """See :class:`Progress`."""

    def round(self, label: str, seed: int, round: int, seconds: float, accuracy: float | None) -> None:
        """See :class:`Progress`."""

    def end(self, label: str, seed: int, reason: str) -> None:
        """See :class:`Progress`."""

    def shared(self, seed: int, trained: int, found: int) -> None:
        """See :class:`Progress`."""

    def close(self) -> None:
        """See :class:`Progress`."""
