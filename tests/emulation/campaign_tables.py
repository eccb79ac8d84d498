"""The tables and figures of docs/emulation.md, from what the campaign has measured."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median
from typing import Any

TITLES = {
    "star": "star, cohort 4",
    "star-8": "cohort 8",
    "star-10": "cohort 10",
    "star-redraw": "cohort 6, rates drawn anew each round",
    "star-changing": "cohort 6, rates change every 0.25 s",
    "star-20ms": "cohort 4, 20 ms",
    "star-20ms-10": "cohort 10, 20 ms",
    "star-50ms-changing": "cohort 6, 50 ms, rates change every 0.25 s",
    "cells": "two cells with backhaul, cohort 6",
    "cells-20ms": "two cells, cohort 8, 20 ms",
    "hierarchical": "two cells that average, cohort 6",
    "hierarchical-10ms": "two cells that average, cohort 8, 10 ms",
    "deadline": "cohort 8, deadline",
    "deadline-partial": "cohort 6, deadline with fewer steps",
    "asynchronous": "asynchronous, buffer 2, four at a time",
    "asynchronous-20ms": "the same, 20 ms, rates change",
    "fedadc": "FedADC with and without overlap, cohort 6",
    "fedadc-20ms": "the same, cohort 4, 20 ms",
    "fedbr": "FedBR with GMBS and with fixed α, cohort 6",
    "fedbr-20ms": "the same, cohort 4, 20 ms",
    "codec": "float32 and 8-bit updates, cohort 6",
    "codec-cells": "the same in two cells",
    "fedalign": "FedAvg and FedAlign, cohort 6",
    "four-methods": "FedADC and FedBR, cohort 4",
    "fifo": "one queue, cohort 6",
    "fifo-10": "one queue, cohort 10",
    "fifo-20ms": "one queue, cohort 6, 20 ms",
    "fifo-cells": "one queue, two cells, cohort 8",
}
"""The scenarios as the table in docs/emulation.md names them."""


Results = dict[str, dict[str, Any]]


def relative(pairs: list[list[float]]) -> list[float]:
    """The sizes of the gaps, as shares of what was predicted."""
    return [abs(found / planned - 1.0) for planned, found in pairs]


def percent(share: float, digits: int = 1) -> str:
    """A share in percent."""
    return f"{100 * share:.{digits}f} %"


def gathered(result: dict[str, Any], what: str) -> list[Any]:
    """A figure of all methods of a scenario."""
    return [each for row in result["methods"] for each in row[what]]


def table(results: Results) -> Iterator[str]:
    """How far the prediction was off, a line for each scenario."""
    yield "| scenario | rounds | median gap | worst round | worst target | bytes |"
    yield "|---|---|---|---|---|---|"
    for name, result in results.items():
        gaps, targets = (relative(gathered(result, what)) for what in ("rounds", "targets"))
        figures = [percent(median(gaps)), percent(max(gaps))] if gaps else ["–", "–"]
        figures.append(percent(max(targets)) if gaps and targets else "–")
        figures.append(percent(max(relative(gathered(result, "bytes"))), 3))
        yield f"| {TITLES[name]} | {len(gaps)} | {' | '.join(figures)} |"


def bands(results: Results) -> Iterator[str]:
    """How many rounds through one queue are in their bands."""
    yield "| scenario | rounds | in the band | width of the band, median | outside: above, below |"
    yield "|---|---|---|---|---|"
    for name, result in results.items():
        spans, inside = gathered(result, "bands"), gathered(result, "inside")
        if not spans:
            continue
        rounds = gathered(result, "rounds")
        above = sum(each[1] > high for each, (_, high), held in zip(rounds, spans, inside, strict=True) if not held)
        below = len(inside) - sum(inside) - above
        width = median((high - low) / each[0] for each, (low, high) in zip(rounds, spans, strict=True))
        share = f"{sum(inside)} ({percent(sum(inside) / len(inside), 0)})"
        yield f"| {TITLES[name]} | {len(inside)} | {share} | {percent(width, 0)} | {above}, {below} |"


def methods(results: Results) -> Iterator[str]:
    """What overlap and the number of blocks change: predicted and measured, a line for each method."""
    yield (
        "| scenario | method | a round, s | gap | hidden download, s | gap | to 50 %, s | gap | "
        "MB counted and carried |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for name in ("fedadc", "fedadc-20ms", "fedbr", "fedbr-20ms"):
        for row in results.get(name, {"methods": []})["methods"]:
            counted, carried = (sum(pair[place] for pair in row["bytes"]) / 1e6 for place in (0, 1))
            pairs = " | ".join(both(row[what]) for what in ("rounds", "hidden", "targets"))
            yield f"| {TITLES[name]} | {row['method']} | {pairs} | {counted:.3f}, {carried:.3f} |"


def both(pairs: list[list[float]]) -> str:
    """The means of predicted and measured seconds, and their gap."""
    if not pairs:
        return "– | –"
    planned, found = (fmean(pair[place] for pair in pairs) for place in (0, 1))
    return f"{planned:.3f}, {found:.3f} | {100 * (found / planned - 1.0):+.1f} %"


def remarks(results: Results) -> Iterator[str]:
    """What the text below the tables states."""
    fair = {name: result for name, result in results.items() if not gathered(result, "bands")}
    for what, chosen in (("fair", fair), ("fifo", {name: results[name] for name in results.keys() - fair.keys()})):
        gaps = sorted((gap for each in chosen.values() for gap in relative(gathered(each, "rounds"))), reverse=True)
        inside = [held for each in chosen.values() for held in gathered(each, "inside")]
        if gaps:
            worst = ", ".join(percent(gap) for gap in gaps[:5])
            yield f"{what}: {len(gaps)} rounds, median {percent(median(gaps))}, worst {worst}"
        if inside:
            yield f"{what}: {sum(inside)} of {len(inside)} rounds in the band ({percent(sum(inside) / len(inside))})"
    for name, result in results.items():
        for row in result["methods"]:
            if not row["same_model"]:
                yield f"{name}, {row['method']}: another final model"
            if row["trust"]:
                yield f"{name}, {row['method']}: {'; '.join(row['trust'])}"
        yield from (
            f"{name}, {figure}: Kendall's tau {tau}, of clear pairs {clear}"
            for figure, (tau, clear) in result["orders"].items()
            if tau != 1.0 or clear not in (None, 1.0)
        )


def printed(results: Results) -> str:
    """All tables, and what the text below them states."""
    return "\n\n".join("\n".join(part(results)) for part in (table, bands, methods, remarks))
