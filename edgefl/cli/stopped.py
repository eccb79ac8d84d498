"""What a command says when it is stopped and there is a way to go on."""

from __future__ import annotations

from edgefl.errors import EdgeflError


class Stopped(EdgeflError):  # noqa: N818  (nothing went wrong)
    """Ctrl-C or SIGTERM ended the command; the message is the advice that follows the fact."""
