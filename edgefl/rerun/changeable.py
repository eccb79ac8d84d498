"""What a replay may change in a scenario."""

from __future__ import annotations

from edgefl.errors import UserError
from edgefl.scenario.overrides import Overrides, parse_overrides

CHANGEABLE = ("network", "fleet", "failures", "budgets", "targets", "target_metric", "stop", "name")
"""Sections of a scenario that do not affect training; ``training.bandwidth`` does not either."""


def check_changeable(changes: Overrides) -> None:
    """Check that changes do not affect training.

    Raises:
        UserError: one does.
    """
    for change in parse_overrides(changes):
        if change.path[0] not in CHANGEABLE and tuple(change.path[:2]) != ("training", "bandwidth"):
            raise UserError(
                f"training depends on '{change.path[0]}'; a replay may change {', '.join(CHANGEABLE)}, "
                "training.bandwidth",
                file=change.origin,
                field=".".join(change.path),
            )
