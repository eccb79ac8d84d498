"""The options of a scenario's ``network:``: the topology, and the named links that connect clients to it."""

import re
import warnings
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, Tag, model_validator

from edgefl import shipped
from edgefl.errors import Note, UserError
from edgefl.input_file import InputFile, InputTraces
from edgefl.network.topology import Sharing
from edgefl.network.traces import LEAST_CHANGE_SECONDS, TraceColumns
from edgefl.network.transport import TransportSpec
from edgefl.options import Options, kind_or
from edgefl.units import BitsPerSecond, Latency, Seconds, parse, without_unit

MEASURED_DOWNLINKS: dict[str, dict[float, float]] = {
    "4g_driving": {5: 3, 25: 15, 50: 32, 75: 55, 95: 112},
    "4g_walking": {5: 3, 25: 12, 50: 29, 75: 58, 95: 110},
    "5g_driving": {5: 12, 25: 98, 50: 124, 75: 550, 95: 1170},
    "5g_walking": {5: 8, 25: 112, 50: 503, 75: 904, 95: 1420},
}
"""Percentiles in Mbit/s of the Lumos5G replay traces (Minneapolis; Narayanan et al., IMC 2020), as published in the
artifact of "A Variegated Look at 5G in the Wild" (SIGCOMM 2021)."""

TraceFormat = Literal["mahimahi", "csv", "5gophers", "lumos5g", "ucc5g", "hsdpa", "ghent4g", "fedscale"]


class ConstantCapacity(Options):
    """The same for all clients at all times; a plain quantity means this."""

    kind: Literal["constant"] = Field("constant", description="A capacity that never changes.")
    rate: BitsPerSecond = Field(description="The capacity of each client's link.")


class UniformCapacity(Options):
    """Drawn for each client uniformly from ``[low, high)``; redrawn as set by the link's ``redraw``."""

    kind: Literal["uniform"] = Field("uniform", description="Each client's capacity is drawn from U(low, high).")
    low: BitsPerSecond = Field(description="Lowest capacity.")
    high: BitsPerSecond = Field(description="Highest capacity.")

    @model_validator(mode="after")
    def _low_before_high(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"expected low at most high, found low {self.low:g} and high {self.high:g} bit/s")
        return self


class TraceCapacity(Options):
    """Recorded traces, looped; each client starts at its own point of its trace unless ``shift`` is none."""

    kind: Literal["trace"] = Field("trace", description="A capacity from recorded traces.")
    file: InputTraces = Field(
        description="A file of traces or a folder of such files, searched here, then below EDGEFL_DATA; 5gophers is"
        " shipped."
    )
    format: TraceFormat | TraceColumns = Field(
        "mahimahi",
        description="mahimahi: a millisecond per packet of 1500 bytes; csv: seconds,bits_per_second; a published data"
        " set's; or the columns of a CSV file.",
    )
    only: str | None = Field(
        None, description="The groups or files that are used, by name; * and ? stand for any characters."
    )
    assign: Literal["random", "in_order"] = Field(
        "random", description="Which client gets which trace. random: drawn; in_order: client k gets trace k."
    )
    every: Seconds = Field(1.0, gt=0, description="Interval over which a mahimahi trace is averaged; 1 ms is exact.")
    scale: float = Field(1.0, gt=0, description="Factor on every rate of the trace.")
    shift: Literal["random", "none"] = Field("random", description="Whether clients start at random points.")

    @model_validator(mode="before")
    @classmethod
    def _shipped_traces_have_their_format(cls, data: Any) -> Any:
        if isinstance(data, dict) and "format" not in data:
            file = data.get("file")
            if isinstance(file, str) and file in shipped.files("traces"):
                return {**data, "format": file}
        return data


class GeneratedCapacity(Options):
    """A seeded random series per client: quantiles of the rate, correlation in time, outages."""

    kind: Literal["process"] = Field("process", description="A capacity from a generated random series.")
    like: Literal["4g_driving", "4g_walking", "5g_driving", "5g_walking"] | None = Field(
        None, description="Quantiles of measured downlinks, instead of `quantiles`."
    )
    quantiles: dict[Annotated[float, Field(ge=0, le=100)], BitsPerSecond] | None = Field(
        None,
        min_length=2,
        description="Percent to rate, {10: 12 Mbit/s, 50: 98 Mbit/s, …}; linear between, flat outside.",
    )
    step: Seconds = Field(1.0, ge=LEAST_CHANGE_SECONDS, description="How long a value is valid.")
    correlation: float = Field(0.7, ge=0, lt=1, description="Lag-1 autocorrelation of the underlying Gaussian series.")
    outage_every: Seconds | None = Field(None, gt=0, description="Mean time between outages; null for none.")
    outage_length: Seconds = Field(2.0, gt=0, description="Mean length of an outage.")

    @model_validator(mode="after")
    def _quantiles_rise(self) -> Self:
        if (self.quantiles is None) == (self.like is None):
            raise ValueError(f"expected either quantiles or like, found {'neither' if self.like is None else 'both'}")
        rates = [rate for _, rate in sorted(self.rates.items())]
        if rates != sorted(rates):
            raise ValueError("expected rates that rise with the percent")
        if self.outage_length < self.step or (self.outage_every is not None and self.outage_every < self.step):
            raise ValueError("expected outage_every and outage_length of at least one step")
        return self

    @property
    def rates(self) -> dict[float, float]:
        """Percent to bit/s, from ``quantiles`` or ``like``."""
        if self.quantiles is not None:
            return self.quantiles
        return {percent: rate * 1e6 for percent, rate in MEASURED_DOWNLINKS[self.like or "5g_driving"].items()}


def _constant(value: Any) -> Any:
    return {"kind": "constant", "rate": value} if isinstance(value, int | float | str) else value


Capacity = Annotated[
    Annotated[ConstantCapacity, Tag("constant")]
    | Annotated[UniformCapacity, Tag("uniform")]
    | Annotated[TraceCapacity, Tag("trace")]
    | Annotated[GeneratedCapacity, Tag("process")],
    kind_or(),
    BeforeValidator(
        _constant,
        json_schema_input_type=BitsPerSecond | ConstantCapacity | UniformCapacity | TraceCapacity | GeneratedCapacity,
    ),
]

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


def _checked_redraw(value: Any) -> Any:
    if isinstance(value, str):
        try:
            redraw_rule(value)
        except UserError as error:
            raise ValueError(error.message) from None
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
    symmetric: bool = Field(
        False, description="One draw sets both capacities: up has the same position in its range as down."
    )
    latency: Latency | None = Field(None, description="One-way latency of this link; null: the topology's.")

    @model_validator(mode="after")
    def _what_is_drawn(self) -> Self:
        if self.symmetric and (self.down.kind, self.up.kind) != ("uniform", "uniform"):
            raise ValueError("symmetric: expected false, because down and up are not both drawn (kind: uniform)")
        if self.redraw is not None and "uniform" not in (self.down.kind, self.up.kind):
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
    sharing: Sharing = Field(
        "wired",
        description="How a cell's clients share its radio channel. wired: not at all; rate_fair: equal rates, each"
        " using time in proportion to 1/capacity (WiFi); airtime_fair: equal shares of the time (cellular).",
    )


class FileTopology(Options):
    """Any directed graph from a file, with ``capacity`` (bit/s), ``latency`` (s) and ``air`` (a name) on its edges."""

    kind: Literal["file"] = Field(description="A graph from a GraphML file, or node-link JSON.")
    file: InputFile = Field(description="The graph's file (.graphml or .json); searched here, then below EDGEFL_DATA.")
    server: str = Field("server", description="The node that is the server.")
    clients: list[str] | None = Field(
        None, description="The nodes that are clients 0, 1, …; null takes those named client/0, client/1, …"
    )
    sharing: Sharing = Field(
        "wired",
        description="How edges with the same `air` share this radio channel. wired: not at all; rate_fair: equal rates,"
        " each using time in proportion to 1/capacity (WiFi); airtime_fair: equal shares of the time (cellular).",
    )


TopologySpec = Annotated[StarTopology | CellsTopology | FileTopology, Field(discriminator="kind")]


class NetworkSpec(Options):
    """A scenario's ``network:``."""

    topology: TopologySpec = Field(description="How the server and the clients are connected.")
    transport: TransportSpec = Field(TransportSpec(), description="How a transfer uses its path.")
    links: dict[str, LinkSpec] = Field(min_length=1, description="The links that fleet groups refer to.")
