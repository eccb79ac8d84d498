"""A run and its prediction as a table, as sentences, as data for programs, and as a picture."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from edgefl.files import writing
from edgefl.report.command_figures import predicted_figure
from edgefl.report.figure_file import draw
from edgefl.report.grid import Cell, Grid, Head, Table
from edgefl.report.prediction.bands import Bands
from edgefl.report.prediction.comparing import Against, SeedAgainst
from edgefl.report.prediction.gaps import Gap, MethodPair, Order, gaps_of, largest, percent
from edgefl.report.prediction.jobs import PHASES
from edgefl.report.quantities import limit, quantity
from edgefl.report.run_record import measured_sentences
from edgefl.wording import escape, listed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = 5
"""How many of the largest gaps are listed."""
_MARKERS = {"round": "o", "download": "v", "compute": "s", "upload": "^"}
_LEGEND = "circles: rounds; squares: training; triangles down and up: downloads and uploads"


class Row(NamedTuple):
    """One figure of one method.

    Attributes:
        dimension: ``seconds`` or ``bytes``.
        predicted, measured, gap, relative: the figure in both runs; of many pairs the medians; ``None``: never reached.
        within: half of the pairs have a relative gap of at most this size; ``None`` for a single pair.
        worst: the pair with the largest gap.
        number: how many pairs there are.
    """

    method: str
    figure: str
    dimension: str
    predicted: float | None
    measured: float | None
    gap: float | None
    relative: float | None
    within: float | None = None
    worst: Gap | None = None
    number: int = 1


def against_table(found: Against) -> Table:
    """Predicted and measured figures with their gaps; below them decisions, order, causes and the largest gaps."""
    rows = [row for method in found.seeds for row in _rows(found, method)]
    several = len({seed for seeds in found.seeds.values() for seed in seeds}) > 1
    heads = [Head("method", text=True), Head("figure", text=True), Head("predicted"), Head("measured")]
    heads += [Head("gap"), Head("half within"), Head("worst gap"), Head("where", text=True)]
    notes = ["Figures of rounds and phases are medians; gap: measured minus predicted, and as a share of predicted."]
    if found.bands.draws:
        notes.append("Predicted seconds of rounds and of targets are the median over the draws of shares in queues.")
    records = [_record(row) for row in rows]
    sentences = _sections(found)
    data = _data(found, records, notes, sentences)
    cells = [[Cell(text) if isinstance(text, str) else text for text in _cells(row, several=several)] for row in rows]
    return Table(Grid(heads, cells, notes), records, data, sentences)


def _rows(found: Against, method: str) -> list[Row]:
    rounds = found.compared_rounds(method)
    kinds = [("round", "rounds"), *((phase, phase) for phase in PHASES)]
    if any(pair.predicted or pair.measured for pair in found.pairs(method, "hidden")):
        kinds += [("exposed transfers", "exposed"), ("hidden transfers", "hidden")]
    rows = []
    for figure, name in kinds:
        if pairs := found.pairs(method, name):
            gaps = gaps_of(pairs)
            rows.append(
                Row(method, figure, "seconds", *gaps[:4], within=gaps.within, worst=gaps.worst, number=gaps.number)
            )
    if rounds:
        what = "first round" if rounds == 1 else f"first {rounds} rounds"
        rows.append(_single(method, what, "seconds", *found.seconds_after(method, rounds)))
    for pair in found.targets[method]:
        what = f"to {limit(pair.value, found.measured.metric.dimension)}"
        rows.append(_single(method, what, "seconds", pair.predicted, pair.measured))
    seeds = list(found.seeds[method].values())
    for name in ("down", "up"):
        predicted = fmean(getattr(seed.predicted_bytes, name) for seed in seeds)
        measured = fmean(getattr(seed.measured_bytes, name) for seed in seeds)
        rows.append(_single(method, f"bytes {name}", "bytes", predicted, measured))
    for name in ("down", "up"):
        wired = [
            (getattr(s.counted, name), getattr(wire, f"more_{name}"), getattr(wire, name))
            for s in seeds
            if s.emulation and (wire := s.emulation.wire_bytes)
        ]
        if wired:
            counted, more, carried = (fmean(each[place] for each in wired) for place in range(3))
            rows.append(_single(method, f"bytes {name}: counted, by interfaces", "bytes", counted, carried))
            if more:
                rows.append(_single(method, f"bytes {name}: with those sent again", "bytes", counted + more, carried))
    return rows


def _single(method: str, figure: str, dimension: str, predicted: float, measured: float) -> Row:
    one, other = _finite(predicted), _finite(measured)
    gap = None if one is None or other is None else other - one
    return Row(method, figure, dimension, one, other, gap, gap / one if gap is not None and one else None)


def _cells(row: Row, *, several: bool) -> list[str | Cell]:
    worst: list[str | Cell] = ["", ""]
    if row.worst is not None and row.number > 1:
        worst = [
            _gap(row.worst.seconds, row.worst.relative, "seconds"),
            row.worst.place.words(method=False, seed=several),
        ]
    figures = [
        "never" if figure is None else quantity(figure, row.dimension) for figure in (row.predicted, row.measured)
    ]
    gap = "–" if row.gap is None else _gap(row.gap, row.relative, row.dimension)
    within = "" if row.within is None or row.number == 1 else percent(row.within).lstrip("+")
    return [row.method, row.figure, *figures, gap, within, *worst]


def _gap(gap: float, relative: float | None, dimension: str) -> Cell:
    sign = "+" if gap > 0 else ""
    return Cell(f"{sign}{quantity(gap, dimension)}", "" if relative is None else f"({percent(relative)})")


def _record(row: Row) -> dict[str, object]:
    worst = row.worst
    return {
        "method": row.method,
        "figure": row.figure,
        "dimension": row.dimension,
        "predicted": row.predicted,
        "measured": row.measured,
        "gap": row.gap,
        "relative_gap": row.relative,
        "half_within": row.within,
        "compared": row.number,
        "worst_gap": None if worst is None else worst.seconds,
        "worst_relative_gap": None if worst is None else worst.relative,
        "worst_seed": None if worst is None else worst.place.seed,
        "worst_round": None if worst is None else worst.place.round,
        "worst_client": None if worst is None else worst.place.client,
    }


def _data(
    found: Against, rows: list[dict[str, object]], notes: list[str], sentences: list[tuple[str, list[str]]]
) -> dict[str, Any]:
    """The comparison for JSON, in base units and full precision.

    Args:
        found: the comparison.
        rows: the rows of the table.
        notes: the notes below it.
        sentences: those of each section.
    """
    return {
        "runs": [
            {"run": "predicted", "path": str(found.predicted.given)},
            {"run": "measured", "path": str(found.measured.given)},
        ],
        "rows": rows,
        "seeds": [
            {"method": method, "seed": seed, **_seed(each, found.bands)}
            for method, seeds in found.seeds.items()
            for seed, each in seeds.items()
        ],
        "orders": [_order_data(order) for order in found.orders()],
        "largest": [{**gap.place._asdict(), "phase": gap.what, **_figures(gap)} for gap in _largest(found)],
        "sentences": [{"about": about, "sentences": lines} for about, lines in sentences],
        "notes": notes,
    }


def _seed(each: SeedAgainst, bands: Bands) -> dict[str, object]:
    phases = _phases(each)
    return {
        "rounds": each.decisions.rounds,
        "compared_rounds": each.decisions.same,
        "differing_decisions": {difference.kind: list(difference.rounds) for difference in each.decisions.differences},
        "rounds_closed_by_another_client": each.other_critical,
        "unmatched": each.unmatched,
        "by_round": [
            {"round": gap.place.round, **_figures(gap), **_band(gap, bands), "phases": phases[gap.place.round]}
            for gap in each.rounds
        ],
        "emulation": None if each.emulation is None else each.emulation.model_dump(mode="json"),
    }


def _phases(each: SeedAgainst) -> dict[int, dict[str, dict[str, float]]]:
    """For each round the medians of its jobs by phase."""
    pairs: defaultdict[int, defaultdict[str, list[Gap]]] = defaultdict(lambda: defaultdict(list))
    for pair in each.phases:
        pairs[pair.place.round][pair.what].append(pair)
    found: defaultdict[int, dict[str, dict[str, float]]] = defaultdict(dict)
    for number, phases in pairs.items():
        for phase in PHASES:
            if phase in phases:
                gaps = gaps_of(phases[phase])
                found[number][phase] = {"predicted": gaps.predicted, "measured": gaps.measured, "gap": gaps.seconds}
    return found


def _figures(gap: Gap) -> dict[str, object]:
    return {"predicted": gap.predicted, "measured": gap.measured, "gap": gap.seconds}


def _band(gap: Gap, bands: Bands) -> dict[str, object]:
    band = bands.of(gap)
    if band is None:
        return {}
    return {"low": band.low, "high": band.high, "inside": band.contains(gap.measured)}


def _order_data(order: Order) -> dict[str, object]:
    pairs = [_pair(pair) for pair in order.pairs]
    return {"figure": order.figure, "tau": order.tau, "clear_tau": order.clear_tau, "pairs": pairs}


def _pair(pair: MethodPair) -> dict[str, object]:
    figures = {name: _finite(getattr(pair, name)) for name in ("predicted", "measured", "gap")}
    return {"first": pair.first, "second": pair.second, **figures, "clear": pair.clear, "kept": pair.kept}


def _finite(value: float) -> float | None:
    """The value if it is finite, because JSON has no infinity."""
    return value if math.isfinite(value) else None


def _sections(found: Against) -> list[tuple[str, list[str]]]:
    """Sentences by heading; headings without a sentence are omitted."""
    parts = {
        "measurement": [*_measurement(found), *found.other],
        "decisions": list(_decisions(found)),
        "one queue for all": list(_bands(found)),
        "order of the methods": [_order(order) for order in found.orders()],
        "largest gaps": [_listed(gap) for gap in _largest(found)],
    }
    # Paths, options and sentences about trust come from files that others may have written.
    return [(heading, [*map(escape, lines)]) for heading, lines in parts.items() if lines]


def _largest(found: Against) -> list[Gap]:
    """The largest gaps in phases of all methods, that differ."""
    # What a client waits for follows from the phases of others.
    phases = [each for seeds in found.seeds.values() for seed in seeds.values() for each in seed.phases]
    return [pair for pair in largest([each for each in phases if each.what != "wait"], _SHOWN) if pair.seconds]


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


def _listed(gap: Gap) -> str:
    sign = "+" if gap.seconds > 0 else ""
    return (
        f"{sign}{quantity(gap.seconds, 'seconds')}: {gap.place.words()}, {gap.what}: "
        f"{quantity(gap.predicted, 'seconds')} predicted, {quantity(gap.measured, 'seconds')} measured."
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def against_figure(found: Against) -> Figure | None:
    """Each round and each phase of a job as a point, a colour for each method; ``None`` if nothing is compared."""
    points = [
        (method, kind, pair.measured, pair.predicted)
        for method in found.seeds
        for kind in _MARKERS
        for pair in found.pairs(method, "rounds" if kind == "round" else kind)
        if pair.measured > 0 and pair.predicted > 0
    ]
    if not points:
        return None
    return predicted_figure(found.measured.name, points, of="a round or phase", markers=_MARKERS, legend=_LEGEND)


def write_against(found: Against) -> Path | None:
    """Write ``against.png`` into the directory of the measured run, and return its path; ``None`` without a point.

    Raises:
        OSError: the file cannot be written.
    """
    figure = against_figure(found)
    if figure is None:
        return None
    path = found.measured.paths.against
    with writing(path) as file:
        draw(figure, file, "png")
    return path
