"""The code of an app answers its messages; sizes and errors are those of Flower."""

from __future__ import annotations

from typing import Any

from edgefl.flower.client_work import Clients
from edgefl.flower.messages import Outcome, Wire, error_reply, expired, node_unavailable
from edgefl.methods.payload import Part


class AppPost:
    """See :class:`~edgefl.flower.exchange.Post`.

    Args:
        clients: execute the ``ClientApp``.
    """

    def __init__(self, clients: Clients) -> None:
        self._wire = Wire()
        self.execute, self.keep = clients.execute, clients.keep

    def error(self, message: Any, outcome: Outcome, reason: str = "") -> Any:
        """The error that Flower gives."""
        if outcome == "unavailable":
            return node_unavailable(message)
        return expired(message) if outcome == "expired" else error_reply(message, "CLIENT_APP_CRASHED", reason)

    def parts(self, client: int, dispatch: int, reply: Any) -> tuple[Part, ...]:
        """The content and the framing of a reply."""
        return self._wire.parts(reply)
