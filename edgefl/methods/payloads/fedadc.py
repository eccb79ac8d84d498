"""FedADC's downlink: the old model prefetched, the mean delta when it is ready."""

from __future__ import annotations

from pydantic import Field

from edgefl.methods.payload import Downlink, ModelSizes, Part, Payload


class FedAdcPayload(Payload):
    """Model of round t-1 while round t-1 computes, mean delta Δ̄ at the start of round t (Ozfatura et al., Sec. III).

    The client computes m_t and θ_t from θ_{t-1}, m_{t-1} and Δ̄. With β_g = β_l the mean delta *is* the momentum;
    otherwise m_{t-1} is also sent. A client that took part in round t-1 already has θ_{t-1} and m_{t-1}. If a codec
    rounds, the client has values computed from rounded parts, so it is sent them like all others, and all clients
    agree. In round 0 only the model is sent, since m_0 = 0 is known. The parts are the same whether or not early ones
    are prefetched.
    """

    beta_g: float = Field(default=0.8, ge=0, lt=1, description="momentum β_g of the server")
    beta_l: float = Field(default=0.8, ge=0, lt=1, description="share β_l of the server's momentum in the local steps")

    def downlink(self, sizes: ModelSizes, round: int, alpha: int | None, held: int | None) -> Downlink:
        """See :class:`Payload`."""
        size = sizes.model_bytes
        if round == 0:
            return Downlink((Part("model", size, 0),), sizes.blocks)
        parts = []
        if held != round - 1 or not sizes.exact:
            parts.append(Part("model", size, round - 1, early=True))
            # m_0 = 0 is known, so the momentum of version 0 is never sent.
            if self.beta_g != self.beta_l and round > 1:
                parts.append(Part("momentum", size, round - 1, early=True))
        parts.append(Part("mean delta", size, round))
        return Downlink(tuple(parts), sizes.blocks)
