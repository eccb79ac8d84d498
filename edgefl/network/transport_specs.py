"""The options of a scenario's ``network.transport:``."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, Self

from pydantic import Field, model_validator

from edgefl.network.fifo import SPREAD, FifoQueue
from edgefl.network.tcp_specs import TcpOptions
from edgefl.network.timeouts import Timeouts
from edgefl.network.transport import Transport, lv08
from edgefl.units import BitsPerSecond


class TransportSpec(TcpOptions):
    """How a connection uses its path in addition to fair sharing."""

    kind: Literal["fluid", "lv08", "tcp"] = Field(
        "fluid",
        description="fluid: whole capacities, plain latency, equal shares; lv08: TCP as in SimGrid's LV08; tcp:"
        " connections with set-up, headers, slow start and losses.",
    )
    acknowledgements: Literal["none", "shared"] = Field(
        "none", description="lv08 only; shared: both directions are one medium, and acknowledgements take 5 % of it."
    )
    connection_limit: BitsPerSecond | None = Field(
        None, gt=0, description="The maximum rate of one transfer, whatever its path; null for no limit."
    )
    multicast: bool = Field(
        False,
        description="true: parts that several clients are sent at the same instant use each link once, at the rate of"
        " the slowest client; false: one transfer for each client.",
    )
    queue: Literal["fair", "fifo"] = Field(
        "fair",
        description="How transfers share a link. fair: max-min, a queue for each; fifo: one queue for all, so shares"
        " are unequal (drawn).",
    )
    queue_spread: float = Field(
        SPREAD, ge=0, le=3, description="fifo only. Standard deviation of the logarithm of a transfer's share."
    )
    timeouts: Timeouts | None = Field(
        None,
        description="When a transfer breaks, and how it is repeated; null: transfers wait for as long as it takes.",
    )

    @model_validator(mode="after")
    def _options_belong_to_their_kind(self) -> Self:
        if self.kind != "lv08" and self.acknowledgements != "none":
            raise ValueError(f"acknowledgements: expected none, because kind is {self.kind}")
        if self.kind == "tcp" and self.multicast:
            raise ValueError("multicast: expected false, because a tcp connection has two ends")
        if self.queue != "fifo" and self.queue_spread != SPREAD:
            raise ValueError("queue_spread: expected no value, because queue is fair, not fifo")
        if self.kind != "tcp":
            for name, field in TcpOptions.model_fields.items():
                if getattr(self, name) != field.default:
                    raise ValueError(f"{name}: expected no value, because kind is {self.kind}, not tcp")
        return self

    @model_validator(mode="after")
    def _members_of_a_multicast_end_together(self) -> Self:
        if self.multicast and self.timeouts is not None:
            raise ValueError("timeouts: expected null, because multicast is true, and one client cannot break alone")
        return self

    def build(self, seed: int = 0) -> Transport:
        """The transport for a :class:`~edgefl.network.flow_network.FlowNetwork`; the seed draws a queue's shares."""
        limit = math.inf if self.connection_limit is None else self.connection_limit
        queue = FifoQueue(seed, self.queue_spread) if self.queue == "fifo" else None
        if self.kind == "lv08":
            transport = lv08(acknowledgements=self.acknowledgements, connection_limit=limit, multicast=self.multicast)
            return replace(transport, queue=queue)
        if self.kind == "tcp":
            tcp, share = self.connections()
            return Transport(efficiency=share, connection_limit=limit, tcp=tcp, queue=queue)
        return Transport(connection_limit=limit, multicast=self.multicast, queue=queue)
