"""The capacities of all clients' own links: drawn, redrawn, or following traces, and which client follows which.

One keyed vector stream per (seed, link, direction, epoch) gives all clients' capacities at once. The method is not part
of the key, so all methods of an experiment have the same network.
"""

from __future__ import annotations

import copy
import fnmatch
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import UserError, nearest
from edgefl.input_file import find_input, plain_files
from edgefl.network.flow import Network
from edgefl.network.processes import CapacityProcess, GeneratedRates, SteppedProcess, StepTrace
from edgefl.network.specs import (
    ConstantCapacity,
    GeneratedCapacity,
    LinkSpec,
    TraceCapacity,
    UniformCapacity,
    redraw_rule,
)
from edgefl.network.traces import read_traces
from edgefl.randomness import generator

Direction = Literal["down", "up"]


_WAY = re.compile(r"(.+)[._-](down|up)(?:link)?(?:\.\w+)?", re.IGNORECASE)


class ReplayedLink:
    """The traces of a link for a fleet, in the directions that follow some."""

    def __init__(self, name: str, link: LinkSpec, clients: int, seed: int, *, folder: Path | None = None) -> None:
        self._name, self._clients, self._seed = name, clients, seed
        self._specs: dict[Direction, TraceCapacity] = {}
        self.traces: dict[Direction, dict[str, StepTrace]] = {}
        names: list[set[str]] = []
        ways: tuple[tuple[Direction, object], ...] = (("down", link.down), ("up", link.up))
        for direction, spec in ways:
            if isinstance(spec, TraceCapacity):
                self._specs[direction] = spec
                try:
                    found = traces_of(spec, direction, folder)
                except UserError as error:
                    raise error.located(field=f"{direction}.file") from None
                self.traces[direction] = found
                names.append(set(found))
        self._together = len({spec.file for spec in self._specs.values()}) < len(self._specs)
        alike = len({spec.only for spec in self._specs.values()}) == 1
        if self._together and alike and (lonely := names[0] ^ names[1]):
            message = f"expected the same traces for down and up, found '{min(lonely)}' for one of them only"
            raise UserError(message, field="up.file", file=self._specs["up"].file)

    def of(self, direction: Direction, clients: NDArray[np.int64]) -> list[StepTrace]:
        """The traces of some clients in one direction, shifted to where each client starts.

        The draws cover the whole fleet, so a client's trace does not depend on which others have this link. If both
        directions name the same file or folder, a client starts both of its traces at the same second.
        """
        rows, traces = self._rows(direction), list(self.traces[direction].values())
        chosen = [traces[rows[client]] for client in clients.tolist()]
        if self._specs[direction].shift == "none":
            return chosen
        key = "both" if self._together else direction
        draws = generator(self._seed, "link-shift", self._name, key).random(self._clients)[clients]
        spans = [trace.period for trace in chosen]
        if self._together:
            other: Direction = "up" if direction == "down" else "down"
            others, pairs = self._rows(other), list(self.traces[other].values())
            spans = [
                min(span, pairs[others[client]].period) for client, span in zip(clients.tolist(), spans, strict=True)
            ]
        return [trace.shifted(draw * span) for trace, draw, span in zip(chosen, draws.tolist(), spans, strict=True)]

    def scaled(self, factor: float) -> ReplayedLink:
        other = copy.copy(self)
        other.traces = {
            direction: {name: trace.scaled(factor) for name, trace in traces.items()}
            for direction, traces in self.traces.items()
        }
        return other

    def _rows(self, direction: Direction) -> NDArray[np.int64]:
        """The number of each client's trace; none is repeated before all were used."""
        count = len(self.traces[direction])
        if self._specs[direction].assign == "in_order" or count == 1:
            return np.arange(self._clients) % count
        draws = generator(self._seed, "link-trace", self._name)
        decks = [draws.permutation(count) for _ in range(-(-self._clients // count))]
        return np.concatenate(decks)[: self._clients].astype(np.int64)


def traces_of(spec: TraceCapacity, direction: Direction, folder: Path | None = None) -> dict[str, StepTrace]:
    """The traces that a capacity names, in order, by the names of their files and groups.

    Of a folder with pairs of files, those for the direction are read. A file that is not found as it is named is
    searched in ``folder``.
    """
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


DIRECTIONS: tuple[Direction, Direction] = ("down", "up")


AnyCapacity = ConstantCapacity | UniformCapacity | TraceCapacity | GeneratedCapacity


class ClientLinks:
    """The capacities of the clients' links, round by round; ``link_of_client`` has the name of each client's link.

    Trace files that are not found as they are named are searched in ``folder``.

    >>> spec = LinkSpec.model_validate(
    ...     {"down": {"kind": "uniform", "low": 40e6, "high": 280e6}, "up": "9 Mbit/s", "redraw": "10 rounds"}
    ... )
    >>> links = ClientLinks({"5g": spec}, ["5g"] * 3, seed=0)
    >>> bool((links.capacities("down", 0) == links.capacities("down", 9)).all()), links.redraws_at(10)
    (True, True)
    """

    def __init__(
        self, links: Mapping[str, LinkSpec], link_of_client: Sequence[str], seed: int, *, folder: Path | None = None
    ) -> None:
        self._seed = seed
        self._count = len(link_of_client)
        self._numbers: dict[Direction, NDArray[np.int64]] = {}
        names = np.array(link_of_client, dtype=object)
        # Sorted, so that the order of a mapping's keys has no effect.
        self._members = {name: np.flatnonzero(names == name) for name in sorted(set(link_of_client))}
        for name in self._members:
            if name not in links:
                raise UserError(f"unknown link '{name}'; expected one of: {', '.join(sorted(links))}")
        self._links = {name: links[name] for name in self._members}
        self._replayed: dict[str, ReplayedLink] = {}
        for name, link in self._links.items():
            try:
                self._replayed[name] = ReplayedLink(name, link, self._count, seed, folder=folder)
            except UserError as error:
                field = f"network.links.{name}.{error.field}"
                raise UserError(error.message, field=field, file=error.file) from None
        self._rounds = {name: int(amount) for name, (kind, amount) in self._rules().items() if kind == "rounds"}
        self._seconds = {name: amount for name, (kind, amount) in self._rules().items() if kind == "seconds"}

    def scaled(self, factor: float) -> ClientLinks:
        """The same links and draws with every capacity multiplied by ``factor``."""
        other = copy.copy(self)
        other._links = scaled_links(self._links, factor)
        other._replayed = {name: link.scaled(factor) for name, link in self._replayed.items()}
        return other

    def usual(self, direction: Direction, *, highest: bool = False) -> NDArray[np.float64]:
        """Each client's usual capacity, bit/s: the middle of a range, the median of a process, a trace's mean."""
        vector = np.zeros(self._count)
        for name, clients in self._members.items():
            spec = self._spec(name, direction)
            if isinstance(spec, TraceCapacity):
                traces = self._replayed[name].of(direction, clients)
                vector[clients] = [max(trace.rates) if highest else trace.mean() for trace in traces]
            elif isinstance(spec, GeneratedCapacity):
                percents = sorted(spec.rates)  # the rates rise with the percent
                vector[clients] = np.interp(
                    100.0 if highest else 50.0, percents, [spec.rates[percent] for percent in percents]
                )
            elif isinstance(spec, ConstantCapacity):
                vector[clients] = spec.rate
            else:
                vector[clients] = spec.high if highest else (spec.low + spec.high) / 2
        return vector

    def highest(self, direction: Direction) -> NDArray[np.float64]:
        return self.usual(direction, highest=True)

    def redraws_at(self, round: int) -> bool:
        """True if some client's capacity is redrawn at the beginning of this round (from 0)."""
        return any(round % rounds == 0 for rounds in self._rounds.values())

    def capacities(self, direction: Direction, round: int) -> NDArray[np.float64]:
        """All clients' capacities in one direction during a round, bit/s; NaN where they follow a process."""
        vector = np.full(self._count, np.nan)
        for name, clients in self._members.items():
            spec = self._spec(name, direction)
            if isinstance(spec, ConstantCapacity):
                vector[clients] = spec.rate
            elif isinstance(spec, UniformCapacity) and name not in self._seconds:
                epoch = round // self._rounds[name] if name in self._rounds else 0
                vector[clients] = self._drawn(name, direction, spec, epoch)[clients]
        return vector

    def attach(self, network: Network) -> None:
        """Set all capacities of round 0, and attach the traces and generators of links that have one."""
        for direction in DIRECTIONS:
            numbers = network.topology.client_links(self._count, up=direction == "up")
            self._numbers[direction] = numbers
            self._set(network, numbers, self.capacities(direction, 0))
            for name, clients in self._members.items():
                processes = self._processes(name, direction, clients)
                for client, process in zip(clients.tolist(), processes, strict=False):
                    network.follow(int(numbers[client]), process)

    def round_begins(self, network: Network, round: int) -> None:
        """Redraw the capacities that are redrawn at the beginning of this round (from 0)."""
        if round == 0 or not self.redraws_at(round):
            return
        for direction in DIRECTIONS:
            self._set(network, self._numbers[direction], self.capacities(direction, round))

    def _rules(self) -> dict[str, tuple[Literal["rounds", "seconds"], float]]:
        return {name: redraw_rule(link.redraw) for name, link in self._links.items() if link.redraw is not None}

    def _spec(self, name: str, direction: Direction) -> AnyCapacity:
        link = self._links[name]
        return link.down if direction == "down" else link.up

    def _drawn(self, name: str, direction: Direction, spec: UniformCapacity, epoch: int) -> NDArray[np.float64]:
        # The draw covers every client of the fleet, so a client's capacity does not depend on which others have this
        # link.
        key = "down" if self._links[name].symmetric else direction
        draws = generator(self._seed, "link", name, key, epoch).random(self._count)
        return spec.low + (spec.high - spec.low) * draws

    def _set(self, network: Network, numbers: NDArray[np.int64], capacities: NDArray[np.float64]) -> None:
        known = ~np.isnan(capacities)
        network.set_capacities(numbers[known], capacities[known])

    def _processes(self, name: str, direction: Direction, clients: NDArray[np.int64]) -> list[CapacityProcess]:
        """Empty where the capacity is constant or drawn by rounds."""
        spec = self._spec(name, direction)
        if isinstance(spec, TraceCapacity):
            return list(self._replayed[name].of(direction, clients))
        if isinstance(spec, GeneratedCapacity):
            rates = GeneratedRates(
                self._seed,
                f"{name} {direction}",
                self._count,
                quantiles=spec.rates,
                step=spec.step,
                correlation=spec.correlation,
                outage_every=float("inf") if spec.outage_every is None else spec.outage_every,
                outage_seconds=spec.outage_length,
            )
            return [rates.process(client) for client in clients.tolist()]
        if isinstance(spec, UniformCapacity) and name in self._seconds:
            redrawn = lru_cache(1)(partial(self._drawn, name, direction, spec))
            return [SteppedProcess(self._seconds[name], redrawn, client) for client in clients.tolist()]
        return []


def scaled_links(links: Mapping[str, LinkSpec], factor: float) -> dict[str, LinkSpec]:
    """The clients' links with every capacity multiplied by ``factor``; random draws stay the same.

    >>> link = LinkSpec.model_validate({"down": "10 Mbit/s", "up": {"kind": "uniform", "low": 1e6, "high": 2e6}})
    >>> scaled = scaled_links({"lte": link}, 0.5)["lte"]
    >>> scaled.down.rate, scaled.up.low, scaled.up.high
    (5000000.0, 500000.0, 1000000.0)
    """
    return {
        name: link.model_copy(update={"down": _scaled(link.down, factor), "up": _scaled(link.up, factor)})
        for name, link in links.items()
    }


def _scaled(capacity: AnyCapacity, factor: float) -> AnyCapacity:
    changes: dict[str, Any]
    if isinstance(capacity, ConstantCapacity):
        changes = {"rate": capacity.rate * factor}
    elif isinstance(capacity, UniformCapacity):
        changes = {"low": capacity.low * factor, "high": capacity.high * factor}
    elif isinstance(capacity, TraceCapacity):
        changes = {"scale": capacity.scale * factor}
    else:
        changes = {"like": None, "quantiles": {percent: rate * factor for percent, rate in capacity.rates.items()}}
    return capacity.model_copy(update=changes)
