"""The clients that closed most rounds: how long the others waited for them, and rounds without them or with a deadline.

Only rounds of the protocols that wait for their cohort are counted, and of these what the event log has: when each
update arrived. Without some clients, the others' transfers are assumed to take as long as they did. With a deadline, a
round ends as it would have: before a deadline nothing depends on it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from edgefl.record.figures import at
from edgefl.report.page.series import Series, compared_series
from edgefl.report.quantities import quantity
from edgefl.report.table import MISSING, Column, Table, figures, hidden, words
from edgefl.report.timeline.data import Round, Timeline
from edgefl.report.timeline.usage import bottlenecks_of
from edgefl.wording import counted

SHOWN = 10
"""Clients of each method."""

LOST = (0.05, 0.1)
"""The shares of updates that the deadlines cut off."""


class Straggler(NamedTuple):
    """A client that closed rounds; ``waited`` are the seconds after the arrival of all others in these rounds."""

    seed: int
    client: int
    device: str
    link: str
    bits_per_second: tuple[float | None, float | None]  # of its transfers down and up, means by bytes
    closed: int
    joined: int  # rounds in which its update was aggregated
    waited: float
    slowest: str  # the phase that was the longest one in most of the rounds that it closed


def arrivals(timeline: Timeline) -> list[tuple[Round, dict[int, float]]]:
    """Each round with the moment at which each aggregated client's update had arrived at the server or its cell."""
    last = defaultdict[tuple[int, int], float](float)
    for each in timeline.transfers:
        if each.up and each.whole and each.client >= 0:
            last[each.client, each.round] = max(last[each.client, each.round], each.ended)
    return [
        (round, {each: last[each, round.number] for each in round.aggregated if (each, round.number) in last})
        for round in timeline.rounds
    ]


def rounds_without(timeline: Timeline, left_out: Collection[int]) -> list[float]:
    """The seconds of each round if these clients had not been in it; one that nobody else was in is unchanged."""
    found = []
    for round, arrived in arrivals(timeline):
        others = [moment for client, moment in arrived.items() if client not in left_out]
        gain = max(arrived.values()) - max(others) if others and round.critical >= 0 else 0.0
        found.append(round.ended - round.began - gain)
    return found


def rounds_by(timeline: Timeline, deadline: float) -> list[tuple[float, int]]:
    """The seconds of each round with a deadline, in seconds after its beginning, and the updates that it cuts off."""
    found = []
    for round, arrived in arrivals(timeline):
        late = [moment - round.began - deadline for moment in arrived.values()]
        found.append((round.ended - round.began - max(0.0, *late, 0.0), sum(each > 0 for each in late)))
    return found


def stragglers_of(one: Series) -> list[Straggler]:
    """The clients that closed rounds, those that closed most first; a client of another seed is another one."""
    groups = [each for each in one.run.fleet for _ in range(at(each, "sample.devices") or 1)]
    found = []
    for result, timeline in zip(one.results, one.timelines, strict=True):
        closed, waited = Counter[int](), defaultdict[int, float](float)
        slowest = defaultdict[int, Counter[str]](Counter)
        joined = Counter(client for round in timeline.rounds for client in round.aggregated)
        for (round, arrived), cause in zip(arrivals(timeline), bottlenecks_of(timeline), strict=True):
            if round.critical in arrived:
                others = [moment for client, moment in arrived.items() if client != round.critical]
                closed[round.critical] += 1
                waited[round.critical] += max(0.0, arrived[round.critical] - max(others)) if others else 0.0
                slowest[round.critical][cause.phase] += 1
        for client, count in closed.items():
            group = timeline.groups.get(client, (-1, ""))[0]
            link = str(groups[group].get("link", MISSING)) if 0 <= group < len(groups) else MISSING
            rates = (_rate(timeline, client, up=False), _rate(timeline, client, up=True))
            [(phase, _)] = slowest[client].most_common(1)
            found.append(Straggler(result.seed, client, timeline.device_of(client), link, rates, count, joined[client],
                                   waited[client], phase))  # fmt: skip
    return sorted(found, key=lambda each: (-each.closed, -each.waited, each.seed, each.client))


def _rate(timeline: Timeline, client: int, *, up: bool) -> float | None:
    own = [each for each in timeline.transfers if each.client == client and each.up is up]
    seconds = sum(each.ended - each.started - each.latency for each in own)
    return 8.0 * sum(each.bytes for each in own) / seconds if seconds > 0 else None


def stragglers_table(series: Sequence[Series]) -> Table | None:
    """Ten clients of each method with an event log whose rounds wait for clients; ``None`` if there is none.

    With secure aggregation each stage waits for all, so the last arrival of a round says nothing about who was slow.
    """
    waiting = [
        one for one in compared_series(series)
        if one.timelines and one.run.option("protocol.kind") in ("synchronous", "hierarchical", None)
        and one.run.option("privacy.secure_aggregation") is None
    ]  # fmt: skip
    shown = [(one, each) for one in waiting for each in stragglers_of(one)[:SHOWN]]
    if not shown:
        return None
    found = [each for _, each in shown]
    columns = [
        words("method", [one.name for one, _ in shown], "method"),
        words("client", [str(each.client) for each in found], "client"),
        words("seed", [str(each.seed) for each in found], "seed"),
        words("device", [each.device for each in found], "device"),
        words("link", [each.link for each in found], "link"),
        figures("closed", [each.closed for each in found], "count", "rounds_closed"),
        figures("of", [each.joined for each in found], "count", "rounds_joined"),
        figures("others waited", [each.waited for each in found], "seconds", "seconds_waited"),
        Column("Mbit/s", [" / ".join(map(_megabits, each.bits_per_second)) for each in found],
               [each.bits_per_second[0] for each in found], "bits_per_second_down"),
        hidden([each.bits_per_second[1] for each in found], "bits_per_second_up"),
        words("slowest part", [each.slowest for each in found], "slowest_part"),
    ]  # fmt: skip
    several = {"method": len(waiting) > 1, "seed": len({each.seed for each in found}) > 1}
    notes = [sentence for one in waiting for sentence in _sentences(one, len(waiting) > 1)]
    shown_columns = [each for each in columns if each.head and several.get(each.head, True)]
    return Table(shown_columns, [*notes, *_RULES], files=columns)


def _megabits(rate: float | None) -> str:
    return MISSING if rate is None else f"{rate / 1e6:.3g}"


_RULES = (
    "Closed: rounds that ended with the arrival of this client's update; of: rounds in which its update was used; "
    "others waited: seconds after all other updates of these rounds had arrived; Mbit/s: of its transfers, down / up.",
    "Without clients: approximated, the other transfers take as long as they did and nobody takes their place. With a "
    "deadline: exact for each round as it was; what later rounds would train and draw is not simulated.",
)


def _sentences(one: Series, several: bool) -> Iterator[str]:
    top = stragglers_of(one)[:SHOWN]
    rounds = [round for timeline in one.timelines for round in timeline.rounds]
    if not top:
        return
    mean = float(np.mean([round.ended - round.began for round in rounds]))
    left_out = {seed: {each.client for each in top if each.seed == seed} for seed in one.run.seeds}
    without = [
        seconds
        for result, timeline in zip(one.results, one.timelines, strict=True)
        for seconds in rounds_without(timeline, left_out[result.seed])
    ]
    came = [moment - round.began for each in one.timelines for round, of in arrivals(each) for moment in of.values()]
    others = [f"about {quantity(float(np.mean(without)), 'seconds')} without them"]
    for share in LOST:
        deadline = float(np.quantile(came, 1 - share))
        found = [each for timeline in one.timelines for each in rounds_by(timeline, deadline)]
        seconds, lost = np.mean([each for each, _ in found]), sum(late for _, late in found) / len(came)
        if lost:
            others.append(f"{quantity(float(seconds), 'seconds')} with a deadline of {quantity(deadline, 'seconds')}, "
                          f"which cuts off {100 * lost:.1f} % of the updates")  # fmt: skip
    yield (
        f"{f'{one.name}: ' * several}{counted(len(top), 'client')} closed "
        f"{sum(each.closed for each in top)} of {len(rounds)} rounds. A round takes {quantity(mean, 'seconds')}; "
        f"{'; '.join(dict.fromkeys(others))}."
    )
