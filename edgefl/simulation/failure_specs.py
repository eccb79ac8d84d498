"""The options of ``failures:``: crashes of clients and outages of links, at given times."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from edgefl.data.attackers import Malicious
from edgefl.errors import locating
from edgefl.fleet.availability import joined
from edgefl.network.topology import Topology
from edgefl.options import Options
from edgefl.units import Seconds

Span = tuple[float, float]
"""Begin and end in virtual seconds; the end may be infinite."""


class _Failure(Options):
    at: Seconds = Field(description="Time of the run at which it begins.")
    duration: Annotated[Seconds, Field(gt=0)] | None = Field(
        None, description="How long it lasts; null: until the end of the run."
    )

    @property
    def span(self) -> Span:
        return self.at, math.inf if self.duration is None else self.at + self.duration


class Crash(_Failure):
    """The process of a client ends, and begins again later."""

    kind: Literal["crash"] = Field(description="crash: the process of a client ends, and begins again later")
    client: int = Field(ge=0, description="The client.")


class Outage(_Failure):
    """A link has no capacity for some time, whatever capacity it would have otherwise."""

    kind: Literal["outage"] = Field(description="outage: a link has no capacity")
    link: tuple[str, str] = Field(
        description="The two nodes of the link, which are neighbours in the topology: [internet, client/3]."
    )
    one_way: bool = Field(False, description="true: only from the first node to the second; false: both directions.")

    @property
    def directions(self) -> list[tuple[str, str]]:
        return [self.link] if self.one_way else [self.link, self.link[::-1]]


Failure = Annotated[Crash | Outage, Field(discriminator="kind")]
"""A failure at a given time."""


def kind(entry: Any) -> Any:
    """The kind of an entry, which an attack has under the key ``malicious``."""
    named = "malicious" in entry if isinstance(entry, Mapping) else isinstance(entry, Malicious)
    return "malicious" if named else entry.get("kind") if isinstance(entry, Mapping) else getattr(entry, "kind", None)


_Entry = Annotated[
    Annotated[Crash, Tag("crash")] | Annotated[Outage, Tag("outage")] | Annotated[Malicious, Tag("malicious")],
    Discriminator(kind),
]

Failures = Annotated[
    tuple[_Entry, ...], BeforeValidator(lambda value: [value] if isinstance(value, Mapping) else value)
]
"""A scenario's ``failures``: a list, or one entry."""


def timed(failures: Iterable[object]) -> tuple[Crash | Outage, ...]:
    """Those at given times."""
    return tuple(each for each in failures if isinstance(each, Crash | Outage))


def check_outages(failures: Sequence[object], topology: Topology) -> None:
    """Check that the network has every link that fails."""
    for index, each in enumerate(failures):
        for source, target in each.directions if isinstance(each, Outage) else ():
            with locating(field=f"failures.{index}.link"):
                topology.link(source, target)


def spans_of(failures: Iterable[object], kind: type[Crash | Outage]) -> dict[Any, list[Span]]:
    """When each client that crashes is down, or when each directed link that fails has no capacity."""
    spans: defaultdict[Any, list[Span]] = defaultdict(list)
    for each in failures:
        if isinstance(each, kind):
            for place in [each.client] if isinstance(each, Crash) else each.directions:
                spans[place].append(each.span)
    return {place: joined(found) for place, found in sorted(spans.items())}
