"""A run and its prediction for programs: every round and phase, the decisions, the order and the largest gaps."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from edgefl.report.against.bands import Bands
from edgefl.report.against.comparing import Against, SeedAgainst
from edgefl.report.against.gaps import Gap, gaps_of
from edgefl.report.against.jobs import PHASES
from edgefl.report.against.order import MethodPair, Order
from edgefl.report.against.sentences import shown_largest


def against_data(
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
        "orders": [_order(order) for order in found.orders()],
        "largest": [_largest(gap) for gap in shown_largest(found)],
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


def _order(order: Order) -> dict[str, object]:
    pairs = [_pair(pair) for pair in order.pairs]
    return {"figure": order.figure, "tau": order.tau, "clear_tau": order.clear_tau, "pairs": pairs}


def _pair(pair: MethodPair) -> dict[str, object]:
    figures = {name: finite(getattr(pair, name)) for name in ("predicted", "measured", "gap")}
    return {"first": pair.first, "second": pair.second, **figures, "clear": pair.clear, "kept": pair.kept}


def _largest(gap: Gap) -> dict[str, object]:
    return {**gap.place._asdict(), "phase": gap.what, **_figures(gap), "cause": gap.cause}


def finite(value: float) -> float | None:
    """The value if it is finite, because JSON has no infinity."""
    return value if math.isfinite(value) else None
