"""What a run tells whoever watches it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A listener to a run under way; it may print, and never changes what the run computes."""

    def begin(self, runs: list[tuple[str, int]], rounds: int) -> None:
        """The runs to come as (method label, seed), each of at most ``rounds`` rounds."""

    def round(self, label: str, seed: int, round: int, seconds: float, accuracy: float | None) -> None:
        """Round ``round`` (from 1) of a run has ended.

        Args:
            label: the method's label.
            seed: the run's seed.
            round: rounds done so far.
            seconds: virtual seconds since the run's start.
            accuracy: in [0, 1], or ``None`` where this round was not evaluated.
        """

    def end(self, label: str, seed: int, reason: str) -> None:
        """A run has ended; ``reason`` is the stop reason of ``summary.json`` (``rounds``, ``target``, ``bytes``…)."""

    def shared(self, seed: int, trained: int, found: int) -> None:
        """All methods of a seed have ended; ``found`` jobs beside the ``trained`` ones had been trained before."""

    def close(self) -> None:
        """Nothing more will come, also after an error."""


class Silent:
    """Tells nobody anything."""

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
