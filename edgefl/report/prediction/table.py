"""A run and its prediction: a line for each method, the figures behind it, data for programs, and a picture."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from edgefl.files import writing
from edgefl.record.figures import finite
from edgefl.report.command_figures import predicted_figure
from edgefl.report.error_of_seconds import measured_sentences
from edgefl.report.figure_file import draw
from edgefl.report.prediction.comparing import Against, SeedAgainst
from edgefl.report.prediction.gaps import Bands, Gap, MethodPair, Order, percent
from edgefl.report.quantities import limit, quantity, unit_for
from edgefl.report.table import MISSING, Column, Table, Value, hidden, words
from edgefl.report.timeline.usage import PHASES
from edgefl.wording import escape, grouped, listed

_SHOWN = 5
"""How many of the largest gaps are listed."""
_MARKERS = {"round": "o", "download": "v", "compute": "s", "upload": "^"}
_LEGEND = "circles: rounds; squares: training; triangles down and up: downloads and uploads"


class Row(NamedTuple):
    """One figure of one method."""

    method: str
    figure: str
    dimension: str
    # predicted, measured, gap, relative_gap: the figure in both runs; of many pairs the medians; None: never reached
    predicted: float | None
    measured: float | None
    gap: float | None
    relative_gap: float | None
    # half of the pairs have a relative gap of at most this size; None for a single pair
    half_within: float | None = None
    compared: int = 1  # how many pairs there are
    worst: Gap | None = None  # the pair with the largest gap, by its share where every pair has one

    def record(self) -> dict[str, Value]:
        """The row for programs."""
        figures: dict[str, Value] = {name: value for name, value in self._asdict().items() if name != "worst"}
        worst = self.worst
        figures |= {"worst_gap": worst and worst.gap, "worst_relative_gap": worst and worst.relative}
        return figures | {f"worst_{name}": worst and getattr(worst.place, name) for name in ("seed", "round", "client")}


def _medians(method: str, figure: str, pairs: Sequence[Gap]) -> Row:
    """The row of many pairs, of which there is at least one."""
    shares = [pair.relative for pair in pairs if pair.relative is not None]
    known = len(shares) == len(pairs)
    sizes = [abs(share) for share in shares] if known else [abs(pair.gap) for pair in pairs]
    predicted = median(pair.predicted for pair in pairs)
    measured, gap = median(pair.measured for pair in pairs), median(pair.gap for pair in pairs)
    relative, within = (median(shares), median(sizes)) if known else (None, None)
    worst = pairs[sizes.index(max(sizes))]
    return Row(method, figure, "seconds", predicted, measured, gap, relative, within, len(pairs), worst)


def against_table(found: Against, *, detailed: bool = False) -> Table:
    """Predicted and measured figures with their gaps: a line for each method, or every figure."""
    rows = {method: _rows(found, method) for method in found.seeds}
    every = [row for each in rows.values() for row in each]
    records, sentences = [row.record() for row in every], _sections(found)
    notes = ["Gap: measured minus predicted, and as a share of predicted; of rounds and phases, medians."]
    if found.bands.draws:
        notes.append("Predicted seconds of rounds and of targets are the median over the draws of shares in queues.")
    data = _data(found, records, notes, sentences)
    files = [hidden([row[name] for row in records], name) for name in records[0]]
    told = [(heading, line) for heading, lines in sentences for line in lines]
    lines = [f"{heading}: {line}" for heading, line in told if detailed or heading != "largest gaps"]
    shown = _details(found, every) if detailed else _glance(rows)
    return Table(shown, [*(notes if detailed else notes[:1]), *lines], data=data, files=files)


def _glance(rows: dict[str, list[Row]]) -> list[Column]:
    """For each method the round, the last target that it reaches and the bytes down and up, with their gaps."""
    heads = list(dict.fromkeys(row.figure for each in rows.values() for row in each))
    columns = [words("method", list(rows))]
    for head in [e for e in heads if e == "round" or (e.startswith(("to ", "first ", "bytes")) and ":" not in e)]:
        found = [next((row for row in each if row.figure == head), None) for each in rows.values()]
        pairs = [(row.predicted, row.measured) if row else () for row in found]
        known = [figure for pair in pairs for figure in pair if figure is not None]
        unit = unit_for(known, "bytes" if head.startswith("bytes") else "seconds")
        cells = []
        for row, pair in zip(found, pairs, strict=True):
            both = ["never" if each is None else unit.number(each) for each in pair] or [MISSING] * 2
            share = "" if row is None or row.relative_gap is None else f" ({percent(row.relative_gap)})"
            cells.append(f"{' → '.join(both)} {unit.symbol}{share}")
        columns.append(Column(head, cells))
    return columns


def _details(found: Against, rows: list[Row]) -> list[Column]:
    several = len({seed for _, seed, _ in found.every}) > 1

    def shown(row: Row, value: float | None) -> str:
        return "never" if value is None else quantity(value, row.dimension)

    worst = [row.worst if row.compared > 1 else None for row in rows]
    within = [row.half_within if row.compared > 1 else None for row in rows]
    return [
        words("method", [row.method for row in rows]),
        words("figure", [row.figure for row in rows]),
        Column("predicted", [shown(row, row.predicted) for row in rows]),
        Column("measured", [shown(row, row.measured) for row in rows]),
        Column("gap", [MISSING if row.gap is None else _gap(row.gap, row.relative_gap, row.dimension) for row in rows]),
        Column("half within", ["" if each is None else percent(each)[1:] for each in within]),
        Column("worst gap", ["" if gap is None else _gap(gap.gap, gap.relative, "seconds") for gap in worst]),
        words("where", ["" if gap is None else gap.place.words(method=False, seed=several) for gap in worst]),
    ]


def _rows(found: Against, method: str) -> list[Row]:
    rounds = found.compared_rounds(method)
    kinds = ["round", *PHASES]
    if any(pair.predicted or pair.measured for pair in found.pairs(method, "hidden transfers")):
        kinds += ["exposed transfers", "hidden transfers"]
    rows = [_medians(method, kind, pairs) for kind in kinds if (pairs := found.pairs(method, kind))]
    if rounds:
        what = "first round" if rounds == 1 else f"first {rounds} rounds"
        rows.append(_single(method, what, "seconds", *found.seconds_after(method, rounds)))
    for value, pair in found.targets[method].items():
        rows.append(_single(method, f"to {limit(value, found.measured.metric.dimension)}", "seconds", *pair))
    seeds = list(found.seeds[method].values())
    for name in ("down", "up"):
        predicted, measured = (fmean(seed.bytes[name][place] for seed in seeds) for place in (0, 1))
        rows.append(_single(method, f"bytes {name}", "bytes", predicted, measured))
    for name in ("down", "up"):
        wired = [(seed.bytes[name][2], getattr(seed.emulation.wire_bytes, name)) for seed in seeds if seed.emulation]
        if wired:
            counted, carried = (fmean(each) for each in zip(*wired, strict=True))
            rows.append(_single(method, f"bytes {name}: counted, by interfaces", "bytes", counted, carried))
    return rows


def _single(method: str, figure: str, dimension: str, predicted: float, measured: float) -> Row:
    one, other = finite(predicted), finite(measured)
    gap = None if one is None or other is None else other - one
    return Row(method, figure, dimension, one, other, gap, gap / one if gap is not None and one else None)


def _gap(gap: float, relative: float | None, dimension: str) -> str:
    sign = "+" if gap > 0 else ""
    return f"{sign}{quantity(gap, dimension)}" + ("" if relative is None else f" ({percent(relative)})")


def _data(
    found: Against, rows: Sequence[Mapping[str, object]], notes: list[str], sentences: list[tuple[str, list[str]]]
) -> dict[str, Any]:
    runs = {"predicted": found.predicted, "measured": found.measured}
    return {
        "runs": [{"run": name, "path": str(run.given)} for name, run in runs.items()],
        "rows": rows,
        "seeds": [{"method": label, "seed": seed, **_seed(each, found.bands)} for label, seed, each in found.every],
        "orders": [
            {
                "figure": order.figure,
                "tau": order.tau,
                "clear_tau": order.clear_tau,
                "pairs": [{**pair._asdict(), **_figures(pair)} for pair in order.pairs],
            }
            for order in found.orders()
        ],
        "largest": [{**gap.place._asdict(), "phase": gap.what, **_figures(gap)} for gap in _largest(found)],
        "sentences": [{"about": about, "sentences": lines} for about, lines in sentences],
        "notes": notes,
    }


def _seed(each: SeedAgainst, bands: Bands) -> dict[str, object]:
    rounds, found = [], grouped(((gap.place.round, gap.what), gap) for gap in each.gaps)
    for gap in [gap for gap in each.gaps if gap.what == "round"]:
        number = gap.place.round
        phases = {of: _figures(_medians("", of, found[number, of])) for of in PHASES if (number, of) in found}
        band = {} if (known := bands.of(gap)) is None else known.data(gap.measured)
        rounds.append({"round": number, **_figures(gap), **band, "phases": phases})
    return {
        "rounds": each.decisions.rounds,
        "compared_rounds": each.decisions.same,
        "differing_decisions": each.decisions.differences,
        "rounds_closed_by_another_client": each.other_critical,
        "unmatched": each.unmatched,
        "by_round": rounds,
        "emulation": None if each.emulation is None else each.emulation.model_dump(mode="json"),
    }


def _figures(each: Gap | Row | MethodPair) -> dict[str, object]:
    return {name: finite(getattr(each, name)) for name in ("predicted", "measured", "gap")}


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
    phases = set(PHASES) - {"wait"}  # what a client waits for follows from the phases of others
    gaps = [gap for *_, each in found.every for gap in each.gaps if gap.gap and gap.what in phases]
    return sorted(gaps, key=lambda gap: -abs(gap.gap))[:_SHOWN]


def _measurement(found: Against) -> Iterator[str]:
    sentences = measured_sentences(found.measured)
    if not sentences:
        yield "The seconds called measured are computed, too: that run was not emulated."
        return
    yield from sentences
    loads = [each.emulation.load for *_, each in found.every if each.emulation is not None]
    seconds = {
        "events late": max(load.late_seconds_median for load in loads),
        "at worst": max(load.late_seconds_worst for load in loads),
        "clock stopped": math.fsum(load.paused_seconds for load in loads),
        "of them during transfers": math.fsum(load.paused_while_sending for load in loads),
    }
    figures = ", ".join(f"{name} {quantity(value, 'seconds')}" for name, value in seconds.items())
    yield f"Processors used: {100 * max(load.cpu for load in loads):.0f} % at most; {figures}."


def _decisions(found: Against) -> Iterator[str]:
    for method, seed, each in found.every:
        differences, _, same = each.decisions
        kinds = [f"{kind} in {len(rounds)} rounds, first {rounds[0]}" for kind, rounds in differences.items()]
        if kinds:
            yield f"{method}, seed {seed}: different {'; '.join(kinds)}. Compared rounds: {same}."


def _bands(found: Against) -> Iterator[str]:
    yield from found.bands.missing
    several = len(found.every) > len(found.seeds)
    for method in found.seeds:
        known = [(pair, band) for pair in found.pairs(method, "round") if (band := found.bands.of(pair)) is not None]
        outside = []
        for pair, band in known:
            if not band.contains(pair.measured):
                measured, low, high = (quantity(each, "seconds") for each in (pair.measured, band.low, band.high))
                place = pair.place.words(method=False, seed=several)
                outside.append(f"{place} ({measured}, band {low} to {high})")
        if known:
            within = f"{len(known) - len(outside)} of {len(known)} rounds are within 1 % of the band of"
            where = f"; outside: {listed(outside)}" if outside else ""
            yield f"{method}: {within} {found.bands.draws} draws of the shares; 9 of 10 are expected{where}."


def _order(order: Order) -> str:
    if order.tau is None:
        return f"{order.figure}: the methods are equal in one of the runs."
    wrong = [f"{pair.first} before {pair.second}" for pair in order.pairs if pair.predicted > 0 and not pair.kept]
    clear = [pair for pair in order.pairs if pair.clear]
    what = "as predicted" if not wrong else f"not as predicted: {listed(wrong)}"
    kept = f"{sum(pair.kept for pair in clear)} of {len(clear)} with a predicted difference above the gap are kept"
    return f"{order.figure}: {what} (Kendall's τ = {order.tau:.2f}, {len(order.pairs)} pairs; {kept})."


def _listed(gap: Gap) -> str:
    predicted, measured = (quantity(each, "seconds") for each in (gap.predicted, gap.measured))
    return f"{_gap(gap.gap, None, 'seconds')}: {gap.place.words()}, {gap.what}: {predicted} → {measured}."


def write_against(found: Against) -> Path | None:
    """Write ``against.png``, in which rounds and phases of jobs are points; ``None`` if nothing is compared."""
    points = [
        (method, kind, pair.measured, pair.predicted)
        for method in found.seeds
        for kind in _MARKERS
        for pair in found.pairs(method, kind)
        if pair.measured > 0 and pair.predicted > 0
    ]
    if not points:
        return None
    name, path = found.measured.name, found.measured.paths.against
    figure = predicted_figure(name, points, of="a round or phase", markers=_MARKERS, legend=_LEGEND)
    with writing(path) as file:
        draw(figure, file, "png")
    return path
