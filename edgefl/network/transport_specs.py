"""The options of a scenario's ``network.transport:``."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from edgefl.network.timeouts import Timeouts
from edgefl.network.transport import Transport, lv08
from edgefl.options import Options
from edgefl.units import BitsPerSecond


class TransportSpec(Options):
    """How a connection uses its path in addition to fair sharing."""

    kind: Literal["fluid", "lv08"] = Field(
        "fluid", description="fluid: whole capacities, plain latency, equal shares; lv08: TCP as in SimGrid's LV08."
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
    timeouts: Timeouts | None = Field(
        None,
        description="When a transfer breaks, and how it is repeated; null: transfers wait for as long as it takes.",
    )

    @model_validator(mode="after")
    def _acknowledgements_need_tcp(self) -> Self:
        if self.kind == "fluid" and self.acknowledgements != "none":
            raise ValueError("acknowledgements: expected none, because kind is fluid")
        return self

    @model_validator(mode="after")
    def _members_of_a_multicast_end_together(self) -> Self:
        if self.multicast and self.timeouts is not None:
            raise ValueError("timeouts: expected null, because multicast is true, and one client cannot break alone")
        return self

    def build(self) -> Transport:
        """The transport for a :class:`~edgefl.network.flow_network.FlowNetwork`."""
        limit = math.inf if self.connection_limit is None else self.connection_limit
        if self.kind == "lv08":
            return lv08(acknowledgements=self.acknowledgements, connection_limit=limit, multicast=self.multicast)
        return Transport(connection_limit=limit, multicast=self.multicast)
