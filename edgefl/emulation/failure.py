"""What ends an emulation."""

from __future__ import annotations

from edgefl.errors import EdgeflError


class EmulationFailed(EdgeflError):  # noqa: N818  (what happened, as the other errors of runs)
    """A process, a link or a transfer of an emulation does not work any more."""
