"""Downlinks of methods whose server sends a second vector of the model's size."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgefl.methods.payload import Downlink, ModelSizes, Part, Payload


class FedGkdPayload(Payload):
    """The model and, when it differs from the model, the teacher: 2 S down with a buffer of more than one model."""

    buffer: int = Field(default=5, ge=1, description="number M of global models in the teacher")

    def downlink(self, sizes: ModelSizes, round: int, alpha: int | None, held: int | None) -> Downlink:
        """See :class:`Payload`."""
        parts = [Part("model", sizes.model_bytes, round)]
        if self.buffer > 1 and round > 0:
            parts.append(Part("teacher", sizes.model_bytes, round))
        return Downlink(tuple(parts), sizes.blocks)


class ScaffoldPayload(Payload):
    """The model and the server's control variate down, the update and the change of the client's own up (2 S each).

    c = 0 is known in round 0. The server can compute the uplink's second part from the first; ``derived`` does not send
    it.
    """

    control_upload: Literal["sent", "derived"] = Field(
        default="sent", description="the change of c_k is sent, as in the paper, or computed by the server"
    )

    def downlink(self, sizes: ModelSizes, round: int, alpha: int | None, held: int | None) -> Downlink:
        """See :class:`Payload`."""
        parts = [Part("model", sizes.model_bytes, round)]
        if round > 0:
            parts.append(Part("control", sizes.model_bytes, round))
        return Downlink(tuple(parts), sizes.blocks)

    def uplink(self, sizes: ModelSizes) -> tuple[Part, ...]:
        """See :class:`Payload`."""
        update = Part("update", sizes.model_bytes, 0)
        return (update, Part("control", sizes.model_bytes, 0)) if self.control_upload == "sent" else (update,)
