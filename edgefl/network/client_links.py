"""The capacities of all clients' own links, round by round."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import UserError
from edgefl.network.capacities.base import DIRECTIONS, Capacities, Direction, LinkDirection
from edgefl.network.flow import Network
from edgefl.network.specs import LinkSpec, redraw_rule


def started(
    name: str, link: LinkSpec, clients: int, seed: int, *, folder: Path | None = None
) -> dict[Direction, Capacities]:
    """A link's capacities in both directions, for so many clients; files not found are searched in ``folder``."""
    redraw, specs = None if link.redraw is None else redraw_rule(link.redraw), {"down": link.down, "up": link.up}
    found: dict[Direction, Capacities] = {}
    for way in DIRECTIONS:
        other = specs["up" if way == "down" else "down"]
        direction = LinkDirection(name, way, clients, seed, redraw, link.symmetric, other, folder)
        try:
            found[way] = specs[way].start(direction)
        except UserError as error:
            raise UserError(error.message, field=f"{way}.{error.field or 'file'}", file=error.file) from None
    return found


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
        self._count, self._seed, self._folder = len(link_of_client), seed, folder
        self._numbers: dict[Direction, NDArray[np.int64]] = {}
        names = np.array(link_of_client, dtype=object)
        # Sorted, so that the order of a mapping's keys has no effect.
        self._members = {name: np.flatnonzero(names == name) for name in sorted(set(link_of_client))}
        for name in self._members:
            if name not in links:
                raise UserError(f"unknown link '{name}'; expected one of: {', '.join(sorted(links))}")
        self._links, self._names = {name: links[name] for name in self._members}, link_of_client
        self._capacities: dict[str, dict[Direction, Capacities]] = {}
        for name, link in self._links.items():
            try:
                self._capacities[name] = started(name, link, self._count, seed, folder=folder)
            except UserError as error:
                field = f"network.links.{name}.{error.field}"
                raise UserError(error.message, field=field, file=error.file) from None

    def scaled(self, factor: float) -> "ClientLinks":
        """The same links and draws with every capacity multiplied by ``factor``."""
        return ClientLinks(scaled_links(self._links, factor), self._names, self._seed, folder=self._folder)

    def usual(self, direction: Direction) -> NDArray[np.float64]:
        """Each client's usual capacity, bit/s: the middle of a range, the median of a process, a trace's mean."""
        return self._of_all(direction, lambda each, clients: each.usual(clients))

    def highest(self, direction: Direction) -> NDArray[np.float64]:
        return self._of_all(direction, lambda each, clients: each.highest(clients))

    def redraws_at(self, round: int) -> bool:
        """True if some client's capacity may change at the beginning of this round (from 0)."""
        return any(each.changes_at(round) for ways in self._capacities.values() for each in ways.values())

    def capacities(self, direction: Direction, round: int) -> NDArray[np.float64]:
        """All clients' capacities in one direction during a round, bit/s; NaN where they follow a process."""
        return self._of_all(direction, lambda each, clients: each.at(round, clients))

    def _of_all(
        self, direction: Direction, of: Callable[[Capacities, NDArray[np.int64]], NDArray[np.float64] | None]
    ) -> NDArray[np.float64]:
        vector = np.full(self._count, np.nan)
        for name, clients in self._members.items():
            if (found := of(self._capacities[name][direction], clients)) is not None:
                vector[clients] = found
        return vector

    def attach(self, network: Network) -> None:
        """Set all capacities of round 0, and attach the traces and generators of links that have one."""
        for direction in DIRECTIONS:
            numbers = network.topology.client_links(self._count, up=direction == "up")
            self._numbers[direction] = numbers
            capacities = self.capacities(direction, 0)
            self._set(network, numbers, capacities)
            for client in np.flatnonzero(np.isnan(capacities)).tolist():
                process = self._capacities[self._names[client]][direction].process(client)
                network.follow(int(numbers[client]), process)

    def round_begins(self, network: Network, round: int) -> None:
        """Redraw the capacities that are redrawn at the beginning of this round (from 0)."""
        if round == 0 or not self.redraws_at(round):
            return
        for direction in DIRECTIONS:
            self._set(network, self._numbers[direction], self.capacities(direction, round))

    def _set(self, network: Network, numbers: NDArray[np.int64], capacities: NDArray[np.float64]) -> None:
        known = ~np.isnan(capacities)
        network.set_capacities(numbers[known], capacities[known])


def scaled_links(links: Mapping[str, LinkSpec], factor: float) -> dict[str, LinkSpec]:
    """The clients' links with every capacity multiplied by ``factor``; random draws stay the same.

    >>> link = LinkSpec.model_validate({"down": "10 Mbit/s", "up": {"kind": "uniform", "low": 1e6, "high": 2e6}})
    >>> scaled = scaled_links({"lte": link}, 0.5)["lte"]
    >>> scaled.down.rate, scaled.up.low, scaled.up.high
    (5000000.0, 500000.0, 1000000.0)
    """
    return {
        name: link.model_copy(update={"down": link.down.scaled(factor), "up": link.up.scaled(factor)})
        for name, link in links.items()
    }
