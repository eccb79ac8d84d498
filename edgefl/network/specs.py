"""The options of a scenario's ``network:``: the topology, and the named links that connect clients to it."""

import re
import warnings
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from edgefl.errors import Note, UserError
from edgefl.input_file import InputFile
from edgefl.network.capacities.base import CAPACITIES, CapacitySpec
from edgefl.network.topology import Sharing
from edgefl.network.trace_times import LEAST_CHANGE_SECONDS
from edgefl.network.transport import TransportSpec
from edgefl.options import Options
from edgefl.registry import OneOf, Unread
from edgefl.units import BitsPerSecond, Latency, parse, without_unit
from edgefl.validation import as_validator


def _constant(value: Any) -> Any:
    return {"kind": "constant", "rate": value} if isinstance(value, int | float | str) else value


Capacity = Annotated[CapacitySpec, OneOf(CAPACITIES, plain=BitsPerSecond), BeforeValidator(_constant)]
"""The capacity of a link in one direction: a quantity, or a mapping with ``kind``."""

_REDRAW = re.compile(r"\s*(\d+)\s*rounds?\s*")


def redraw_rule(text: str) -> tuple[Literal["rounds", "seconds"], float]:
    """``10 rounds`` or ``30 s`` as a rule.

    >>> redraw_rule("10 rounds"), redraw_rule("2 min")
    (('rounds', 10.0), ('seconds', 120.0))
    """
    match = _REDRAW.fullmatch(text)
    kind: Literal["rounds", "seconds"] = "rounds" if match else "seconds"
    try:
        amount = float(match[1]) if match else parse(text, "seconds")
    except UserError:
        amount = 0.0
    if amount <= 0:
        raise UserError(f"expected a number of rounds or seconds above 0, '10 rounds' or '30 s', found '{text}'")
    if kind == "seconds" and amount < LEAST_CHANGE_SECONDS:
        raise UserError(f"expected {1000 * LEAST_CHANGE_SECONDS:g} ms or more, found '{text}'")
    return kind, amount


@as_validator
def _checked_redraw(value: Any) -> Any:
    if isinstance(value, str):
        redraw_rule(value)
        if without_unit(value):
            warnings.warn(f"'{value}' without a unit is {value} s; did you mean '{value} rounds'?", Note, stacklevel=1)
    return value


class LinkSpec(Options):
    """How one kind of client reaches the network: ``network.links.NAME``."""

    down: Capacity = Field(description="Capacity towards the client.")
    up: Capacity = Field(description="Capacity from the client.")
    redraw: Annotated[str | None, BeforeValidator(_checked_redraw)] = Field(
        None, description="When drawn capacities are redrawn: '10 rounds', '30 s', or null for never."
    )
    symmetric: bool = Field(False, description="One draw sets both: up is at the place of down in its range.")
    latency: Latency | None = Field(None, description="One-way latency of this link; null: the topology's.")

    @model_validator(mode="after")
    def _what_is_drawn(self) -> Self:
        if any(isinstance(each, Unread) for each in (self.down, self.up)):
            return self  # the link of a run directory, which was checked when the run began
        if self.symmetric and not (self.down.drawn and self.up.drawn):
            raise ValueError("symmetric: expected false, because down and up are not both drawn (kind: uniform)")
        if self.redraw is not None and not (self.down.drawn or self.up.drawn):
            raise ValueError("redraw: expected null, because neither down nor up is drawn (kind: uniform)")
        return self


class Rates(Options):
    """A capacity in each direction; *down* is from the server towards the clients."""

    down: BitsPerSecond = Field(description="Capacity from the server towards the clients.")
    up: BitsPerSecond = Field(description="Capacity from the clients towards the server.")


class StarTopology(Options):
    """``server`` - ``internet`` - every ``client/k``."""

    kind: Literal["star"] = Field("star", description="Every client reaches the server over its own link.")
    server: Rates = Field(description="Capacity of the server's connection, shared by all clients.")
    latency: Latency = Field(0.0, description="One-way latency between the server and a client.")


class CellsTopology(Options):
    """``server`` - ``internet`` - ``cell/c`` - ``client/k``; client k is in cell k modulo the number of cells."""

    kind: Literal["cells"] = Field(description="Clients reach the server through cells, each with a backhaul.")
    server: Rates = Field(description="Capacity of the server's connection, shared by all cells.")
    cells: int = Field(gt=0, le=100_000, description="Number of cells.")
    backhaul: Rates = Field(description="Capacity of each cell's connection.")
    latency: Latency = Field(0.0, description="One-way latency between the server and a client.")
    sharing: Sharing = Field("wired", description="How a cell's clients share it: not, equal rates or equal time.")


class FileTopology(Options):
    """Any directed graph from a file, with ``capacity`` (bit/s), ``latency`` (s) and ``air`` (a name) on its edges."""

    kind: Literal["file"] = Field(description="A graph from a GraphML file, or node-link JSON.")
    file: InputFile = Field(description="The graph's file (.graphml or .json); searched here, then below EDGEFL_DATA.")
    server: str = Field("server", description="The node that is the server.")
    clients: list[str] | None = Field(None, description="The nodes of clients 0, 1, …; null: client/0, client/1, …")
    sharing: Sharing = Field("wired", description="How edges of one `air` share it: not, equal rates or equal time.")


TopologySpec = Annotated[StarTopology | CellsTopology | FileTopology, Field(discriminator="kind")]


class NetworkSpec(Options):
    """A scenario's ``network:``."""

    topology: TopologySpec = Field(description="How the server and the clients are connected.")
    transport: TransportSpec = Field(TransportSpec(), description="How a transfer uses its path.")
    links: dict[str, LinkSpec] = Field(min_length=1, description="The links that fleet groups refer to.")
