"""The options of TCP connections, part of a scenario's ``network.transport:``."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from edgefl.network.tcp import LARGEST_WINDOW, Handshake, Tcp, payload_share
from edgefl.options import Options
from edgefl.units import Bytes, Seconds


class TcpOptions(Options):
    """How connections begin, grow and lose packets; for ``kind: tcp`` only."""

    handshake: Handshake = Field(
        "tls",
        description="tcp only. Round trips before the first byte: none 0, tcp 1, tls (1.3) 2, tls_0rtt 2 for the first"
        " connection of two nodes and then 0.",
    )
    keep_alive: Seconds = Field(
        0.0, description="tcp only. How long an idle connection stays open for the next transfer of its client."
    )
    packet_bytes: Bytes = Field(
        1500.0, ge=68, le=65535, description="tcp only. Maximum size of an IP packet, with its headers."
    )
    header_bytes: Bytes = Field(
        52.0, le=60 + 60, description="tcp only. IP and TCP headers of each packet; 52: IPv4 and TCP with timestamps."
    )
    framing_bytes: Bytes = Field(
        0.0, le=1000, description="tcp only. What the link adds to each packet; 38: Ethernet with its gap."
    )
    initial_window: int | None = Field(
        10, ge=1, le=1000, description="tcp only. Packets in the first round trip of slow start; null: no slow start."
    )
    restart_idle: bool = Field(
        True,
        description="tcp only. Whether a kept connection begins slow start again after an idle time above its time-out"
        " (at least 1 s).",
    )
    window: Bytes | None = Field(
        None, gt=0, le=LARGEST_WINDOW, description="tcp only. Maximum of bytes in flight; null: 1 GiB, TCP's largest."
    )
    loss: float = Field(0.0, ge=0, lt=1, description="tcp only. Probability that a packet is lost.")
    acknowledge_every: int = Field(
        1, ge=1, le=2, description="tcp only. Packets for one acknowledgement; 2 makes slow start and recovery slower."
    )

    @model_validator(mode="after")
    def _a_packet_has_payload(self) -> Self:
        if self.header_bytes >= self.packet_bytes:
            raise ValueError(
                f"header_bytes: expected less than packet_bytes ({self.packet_bytes:g}), found {self.header_bytes:g}"
            )
        return self

    def connections(self) -> tuple[Tcp, float]:
        """The connections, and the share of a capacity that carries payload."""
        encrypted = self.handshake in ("tls", "tls_0rtt")
        share = payload_share(
            packet_bytes=self.packet_bytes,
            header_bytes=self.header_bytes,
            framing_bytes=self.framing_bytes,
            encrypted=encrypted,
        )
        # Payload of a packet: what its part of a TLS record leaves.
        segment = share * (self.packet_bytes + self.framing_bytes)
        tcp = Tcp(
            handshake=self.handshake,
            keep_alive=self.keep_alive,
            segment=segment,
            initial_window=self.initial_window,
            restart_idle=self.restart_idle,
            window=LARGEST_WINDOW if self.window is None else self.window,
            loss=self.loss,
            acknowledge_every=self.acknowledge_every,
        )
        return tcp, share
