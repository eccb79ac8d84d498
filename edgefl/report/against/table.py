"""A run and its prediction as plain cells and as records, from which all formats are written."""

from __future__ import annotations

from statistics import fmean
from typing import NamedTuple

from edgefl.report.against.comparing import Against
from edgefl.report.against.data import against_data, finite
from edgefl.report.against.gaps import Gap, gaps_of, percent
from edgefl.report.against.jobs import PHASES
from edgefl.report.against.sentences import sections
from edgefl.report.grid import Cell, Grid, Head, Table
from edgefl.report.quantities import limit, quantity


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
    sentences = sections(found)
    data = against_data(found, records, notes, sentences)
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
    one, other = finite(predicted), finite(measured)
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
