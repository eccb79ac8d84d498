"""What a comparison of a run with its prediction shows, in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator

from edgefl.printable import printable_line
from edgefl.report.against.causes import CAUSES, Cause
from edgefl.report.against.comparing import Against
from edgefl.report.against.gaps import Gap, by_cause, largest
from edgefl.report.against.order import MethodPair, Order
from edgefl.report.measured import measured_sentences
from edgefl.report.quantities import quantity
from edgefl.wording import listed

_SHOWN = 5
"""How many of the largest gaps are listed."""


def sections(found: Against) -> list[tuple[str, list[str]]]:
    """Sentences by heading; headings without a sentence are omitted."""
    parts = {
        "measurement": [*_measurement(found), *found.other],
        "decisions": list(_decisions(found)),
        "one queue for all": list(_bands(found)),
        "order of the methods": [_order(order) for order in found.orders()],
        "causes": list(_causes(found)),
        "largest gaps": [_listed(gap) for gap in shown_largest(found)],
    }
    # Paths, options and sentences about trust come from files that others may have written.
    return [(heading, [*map(printable_line, lines)]) for heading, lines in parts.items() if lines]


def shown_largest(found: Against) -> list[Gap]:
    """The largest gaps in phases of all methods, that differ."""
    pairs = [pair for method in found.seeds for pair in _phases(found, method)]
    return [pair for pair in largest(pairs, _SHOWN) if pair.seconds]


def _measurement(found: Against) -> Iterator[str]:
    sentences = measured_sentences(found.measured)
    if not sentences:
        yield "The seconds called measured are computed, too: that run was not emulated."
        return
    yield from sentences
    known = [each.emulation for seeds in found.seeds.values() for each in seeds.values() if each.emulation is not None]
    loads = [each.load for each in known]
    used = 100 * max(load.cpu for load in loads)
    yield (
        f"The computer used at most {used:.0f} % of its processors; events were late by "
        f"{quantity(max(load.late_seconds_median for load in loads), 'seconds')} in the median and "
        f"{quantity(max(load.late_seconds_worst for load in loads), 'seconds')} at worst; the clock was stopped for "
        f"{quantity(math.fsum(load.paused_seconds for load in loads), 'seconds')} in total, "
        f"{quantity(math.fsum(load.paused_while_sending for load in loads), 'seconds')} of them during transfers."
    )


def _decisions(found: Against) -> Iterator[str]:
    for method, seeds in found.seeds.items():
        for seed, each in seeds.items():
            decisions = each.decisions
            if not decisions.differences:
                continue
            kinds = [
                f"{found_in.kind} in {_counted(len(found_in.rounds), 'round')} (the first is {found_in.rounds[0]})"
                for found_in in decisions.differences
            ]
            compared = f"only the {_counted(decisions.same, 'round')} before it are compared"
            if decisions.same < 2:
                compared = "only round 1 is compared" if decisions.same else "no round is compared"
            yield (
                f"{method}, seed {seed}: the runs decided differently: {listed(kinds)}. From round "
                f"{decisions.same + 1} on their rounds are not the same, so {compared}."
            )


def _bands(found: Against) -> Iterator[str]:
    yield from found.bands.missing
    several = any(len(seeds) > 1 for seeds in found.seeds.values())
    for method in found.seeds:
        known = [(pair, band) for pair in found.pairs(method, "rounds") if (band := found.bands.of(pair)) is not None]
        outside = [
            f"{pair.place.words(method=False, seed=several)} ({quantity(pair.measured, 'seconds')}, band "
            f"{quantity(band.low, 'seconds')} to {quantity(band.high, 'seconds')})"
            for pair, band in known
            if not band.contains(pair.measured)
        ]
        if known:
            where = f"; outside: {listed(outside)}" if outside else ""
            yield (
                f"{method}: {len(known) - len(outside)} of the {_counted(len(known), 'round')} are in the band from "
                f"the lowest to the highest of {found.bands.draws} draws of the shares, within 1 %; 9 of 10 are "
                f"expected{where}."
            )


def _order(order: Order) -> str:
    if order.tau is None:
        return f"{order.figure}: the methods are tied in one of the runs."
    wrong = [pair for pair in order.pairs if pair.predicted > 0 and not pair.kept]
    clear = [pair for pair in order.pairs if pair.clear]
    number = _counted(len(order.pairs), "pair")
    if not wrong:
        return f"{order.figure}: the methods are in the predicted order (Kendall's τ = {order.tau:.2f}, {number})."
    named = listed([_named(pair) for pair in wrong])
    kept = sum(pair.kept for pair in clear)
    trusted = "no pair has a predicted difference larger than its gap"
    if clear:
        trusted = (
            f"of the {_counted(len(clear), 'pair')} with a predicted difference larger than the gap, {kept} are kept"
        )
    return f"{order.figure}: Kendall's τ = {order.tau:.2f} ({number}); not {named}; {trusted}."


def _named(pair: MethodPair) -> str:
    return f"{pair.first} before {pair.second}"


def _causes(found: Against) -> Iterator[str]:
    named: set[Cause] = set()
    for method in found.seeds:
        seconds = by_cause([pair for pair in _phases(found, method) if pair.seconds])
        total = math.fsum(seconds.values())
        if total:
            named |= seconds.keys()
            shares = [f"{cause} {100 * each / total:.0f} %" for cause, each in seconds.items()]
            yield f"{method}: the gaps of all phases sum to {quantity(total, 'seconds')}: {listed(shares)}."
    if named:
        yield f"Probable causes: {'; '.join(f'{cause}: {words}' for cause, words in CAUSES.items() if cause in named)}."


def _listed(gap: Gap) -> str:
    sign = "+" if gap.seconds > 0 else ""
    return (
        f"{sign}{quantity(gap.seconds, 'seconds')}: {gap.place.words()}, {gap.what}: "
        f"{quantity(gap.predicted, 'seconds')} predicted, {quantity(gap.measured, 'seconds')} measured: {gap.cause}."
    )


def _phases(found: Against, method: str) -> list[Gap]:
    """The gaps of all phases that have a cause."""
    return [pair for seed in found.seeds[method].values() for pair in seed.phases if pair.cause is not None]


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
