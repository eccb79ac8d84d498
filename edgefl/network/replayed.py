"""Which client follows which recorded trace, and from which point of it."""

from __future__ import annotations

import copy
import fnmatch
import re
from pathlib import Path
from typing import Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import UserError, nearest
from edgefl.input_file import find_input, plain_files
from edgefl.network.processes import StepTrace
from edgefl.network.specs import LinkSpec, TraceCapacity
from edgefl.network.traces import read_traces
from edgefl.randomness import generator

Direction = Literal["down", "up"]


_WAY = re.compile(r"(.+)[._-](down|up)(?:link)?(?:\.\w+)?", re.IGNORECASE)


class ReplayedLink:
    """The traces of a link for a fleet, in the directions that follow some."""

    def __init__(self, name: str, link: LinkSpec, clients: int, seed: int, *, folder: Path | None = None) -> None:
        self._name, self._clients, self._seed = name, clients, seed
        self._specs: dict[Direction, TraceCapacity] = {}
        self._traces: dict[Direction, list[StepTrace]] = {}
        names: list[set[str]] = []
        ways: tuple[tuple[Direction, object], ...] = (("down", link.down), ("up", link.up))
        for direction, spec in ways:
            if isinstance(spec, TraceCapacity):
                self._specs[direction] = spec
                try:
                    found = traces_of(spec, direction, folder)
                except UserError as error:
                    raise error.located(field=f"{direction}.file") from None
                self._traces[direction] = list(found.values())
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
        rows = self._rows(direction)
        chosen = [self._traces[direction][rows[client]] for client in clients.tolist()]
        if self._specs[direction].shift == "none":
            return chosen
        key = "both" if self._together else direction
        draws = generator(self._seed, "link-shift", self._name, key).random(self._clients)[clients]
        spans = [trace.period for trace in chosen]
        if self._together:
            other: Direction = "up" if direction == "down" else "down"
            others = self._rows(other)
            spans = [
                min(span, self._traces[other][others[client]].period)
                for client, span in zip(clients.tolist(), spans, strict=True)
            ]
        return [trace.shifted(draw * span) for trace, draw, span in zip(chosen, draws.tolist(), spans, strict=True)]

    def scaled(self, factor: float) -> ReplayedLink:
        other = copy.copy(self)
        other._traces = {
            direction: [trace.scaled(factor) for trace in traces] for direction, traces in self._traces.items()
        }
        return other

    def _rows(self, direction: Direction) -> NDArray[np.int64]:
        """The number of each client's trace; none is repeated before all were used."""
        count = len(self._traces[direction])
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
