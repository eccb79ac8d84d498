"""Capacities from recorded traces, and which client follows which."""

import fnmatch
import re
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from edgefl import shipped
from edgefl.errors import UserError, nearest
from edgefl.input_file import InputTraces, find_input, plain_files
from edgefl.network.capacities.base import CAPACITIES, Capacities, CapacitySpec, Direction, LinkDirection
from edgefl.network.traces import TraceColumns, read_traces
from edgefl.randomness import generator
from edgefl.step_trace import StepTrace
from edgefl.units import Seconds

_WAY = re.compile(r"(.+)[._-](down|up)(?:link)?(?:\.\w+)?", re.IGNORECASE)

TraceFormat = Literal["mahimahi", "csv", "5gophers", "lumos5g", "ucc5g", "hsdpa", "ghent4g", "fedscale"]


@CAPACITIES.register("trace")
class TraceCapacity(CapacitySpec):
    """Recorded traces, looped; each client starts at its own point of its trace unless ``shift`` is none."""

    kind: Literal["trace"] = Field("trace", description="A capacity from recorded traces.")
    file: InputTraces = Field(description="A file or folder, searched here, then below EDGEFL_DATA, or 5gophers.")
    format: TraceFormat | TraceColumns = Field(
        "mahimahi", description="A format's name, or the columns of a CSV file; mahimahi: a millisecond per packet."
    )
    only: str | None = Field(None, description="The groups or files that are used, by name; * and ? as in a shell.")
    assign: Literal["random", "in_order"] = Field("random", description="Drawn, or client k gets trace k.")
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

    def start(self, direction: LinkDirection) -> Capacities:
        return _Replayed(self, direction)

    def scaled(self, factor: float) -> Self:
        return self.model_copy(update={"scale": self.scale * factor})


class _Replayed(Capacities):
    """A direction's traces, each client's, and where it starts: at one second in both, if they have one file."""

    def __init__(self, spec: TraceCapacity, direction: LinkDirection, *, with_pair: bool = True) -> None:
        self._spec, self._link = spec, direction
        self.traces = traces_of(spec, direction.direction, direction.folder)
        self._in_order, self._pair = list(self.traces.values()), None
        other = direction.other
        if with_pair and isinstance(other, TraceCapacity) and other.file == spec.file:
            way: Direction = "up" if direction.direction == "down" else "down"
            self._pair = _Replayed(other, direction._replace(direction=way), with_pair=False)
            alike = other.only == spec.only and way == "down"  # said once, of the second direction
            if alike and (lonely := self.traces.keys() ^ self._pair.traces.keys()):
                message = f"expected the same traces for down and up, found '{min(lonely)}' for one of them only"
                raise UserError(message, field="file", file=spec.file)

    def usual(self, clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """The means."""
        return np.array([self.process(client).mean() for client in clients.tolist()])

    def highest(self, clients: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.array([max(self.process(client).rates) for client in clients.tolist()])

    def process(self, client: int) -> StepTrace:
        trace = self._chosen(client)
        if self._spec.shift == "none":
            return trace
        span = trace.period if self._pair is None else min(trace.period, self._pair._chosen(client).period)
        return trace.shifted(self._draws[client] * span)

    def _chosen(self, client: int) -> StepTrace:
        return self._in_order[self._rows[client]]

    @cached_property
    def _rows(self) -> list[int]:
        """The number of each client's trace; none is repeated before all were used."""
        count, clients = len(self.traces), self._link.clients
        if self._spec.assign == "in_order" or count == 1:
            return [client % count for client in range(clients)]
        draws = generator(self._link.seed, "link-trace", self._link.name)
        return [number for _ in range(-(-clients // count)) for number in draws.permutation(count).tolist()]

    @cached_property
    def _draws(self) -> list[float]:
        """Where each client starts, in parts of its trace; the draws cover the whole fleet."""
        key = "both" if self._pair is not None else self._link.direction
        numbers = generator(self._link.seed, "link-shift", self._link.name, key)
        draws: list[float] = numbers.random(self._link.clients).tolist()
        return draws


def traces_of(spec: TraceCapacity, direction: Direction, folder: Path | None = None) -> dict[str, StepTrace]:
    """The traces that a capacity names, for this direction of pairs; its file is searched also in ``folder``."""
    path = find_input(spec.file, folder, what="traces")
    files = _files(path, direction) if path.is_dir() else {"": path}
    found: dict[str, StepTrace] = {}
    for name, file in files.items():
        traces = read_traces(file, spec.format, every=spec.every, scale=spec.scale)
        found |= {"/".join(filter(None, (name, group))): trace for group, trace in traces.items()}
    if spec.only is None:
        return found
    chosen = {name: trace for name, trace in found.items() if fnmatch.fnmatchcase(name, spec.only)}
    if not chosen:
        names = list(found)
        hint = nearest(spec.only, names) if len(names) <= 10 else f"the first of {len(names)} names is '{names[0]}'"
        raise UserError(f"only: expected a name of a trace, found '{spec.only}'; {hint}", file=str(path))
    return chosen


def _files(folder: Path, direction: Direction) -> dict[str, Path]:
    """By name; 2 is before 10."""
    ways: dict[str, dict[str, Path]] = {"down": {}, "up": {}, "both": {}}
    for path in plain_files(folder):
        match = _WAY.fullmatch(path.name)
        name, way = (match[1], match[2].lower()) if match else (path.name, "both")
        if name in ways[way]:
            _refuse(folder, f"expected one file '{name}' for {way}, found {ways[way][name].name} and {path.name}")
        ways[way][name] = path
    down, up, both = ways.values()
    lonely = down.keys() ^ up.keys()
    if (down or up) and (both or (down and up and lonely)):
        name = min(both or lonely)
        _refuse(folder, f"expected names that all end in down or up, in pairs, or none of them, found '{name}' alone")
    if not both and not ways[direction]:
        inner = ", ".join(sorted(path.name for path in folder.iterdir() if path.is_dir())[:3])
        found = "none" if not inner else f"only folders: {inner}"
        _refuse(folder, f"expected files for {direction}, found {'those for the other way' if down or up else found}")
    chosen = both or ways[direction]
    return {name: chosen[name] for name in sorted(chosen, key=_by_numbers)}


def _by_numbers(name: str) -> tuple[list[str | int], str]:
    """Numbers in a name by value. Texts and numbers alternate, so that each is compared with its like."""
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if number % 2 else part for number, part in enumerate(parts)], name


def _refuse(folder: Path, message: str) -> NoReturn:
    raise UserError(message, file=str(folder))
