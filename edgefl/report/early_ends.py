"""Sentences about runs that ended early; methods that ended for the same reason share one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgefl.wording import listed, without_method

if TYPE_CHECKING:
    from edgefl.report.rows import Row

ENDS = {
    "rounds": "at the last round",
    "target": "at the last target",
    "stalled": "by a stall",
    "diverged": "by divergence",
    "fault": "by a fault",
}
"""How a run ended, in words; budgets are named by their limits."""

IN_VAIN = ("stalled", "diverged", "fault")
"""The reasons of an early end that no budget and no target gave."""

_WITH_A_UNIT = ("rmse", "mae")
"""Metrics of regression, whose targets may have any scale."""


def none_completed_a_round(rows: Sequence[Row]) -> bool:
    """Whether every run of all rows ended by a stall, divergence or fault before its first round ended."""
    ended = all(reason in IN_VAIN for row in rows for reason, _ in row.stops)
    return ended and not any(row.total("rounds") for row in rows)


def early_ends(rows: Sequence[Row]) -> dict[tuple[str, str], list[str]]:
    """The sentences, by run and label of the first method that each is about."""
    groups: dict[tuple[str, str, str, str], list[tuple[str, str]]] = {}
    for row in rows:
        for reason, count in row.stops:
            if (message := row.messages.get(reason)) is not None:
                which = f" ({count} of {row.seeds} seeds)" if row.seeds > 1 else ""
                message = message.rstrip(".") + _hint(row, reason, message)
                key = row.run, reason, which, without_method(message, row.label)
                groups.setdefault(key, []).append((row.label, message))
    sentences: dict[tuple[str, str], list[str]] = {}
    for (run, reason, which, shared), found in groups.items():
        labels = [label for label, _ in found]
        cause = found[0][1] if len(found) == 1 else shared
        sentence = f"{listed(labels)} ended {ENDS.get(reason, f'by {reason}')}{which}: {cause}."
        sentences.setdefault((run, labels[0]), []).append(sentence)
    return sentences


def _hint(row: Row, reason: str, message: str) -> str:
    if reason != "diverged" or row.metric.name not in _WITH_A_UNIT or "diverged in round 1:" not in message:
        return ""
    return "; scale the targets to a deviation of about 1, or lower training.local.lr"
