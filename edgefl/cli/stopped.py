"""The error of a command that was stopped and can be continued."""

from __future__ import annotations

from edgefl.errors import EdgeflError


class Stopped(EdgeflError):  # noqa: N818  (nothing went wrong)
    """Ctrl-C or SIGTERM ended the command; the message says how to continue."""
