"""The running totals of a run."""

from __future__ import annotations

from dataclasses import fields

import pytest

from edgefl.record.kinds import LOST
from edgefl.simulation.ledger import Ledger


@pytest.mark.parametrize("fate", LOST)
def test_lost_bytes_have_a_total_by_fate_except_those_of_unfinished_jobs(fate):
    ledger = Ledger()
    ledger.lost(fate, 3.0)
    changed = {field.name: getattr(ledger, field.name) for field in fields(ledger) if getattr(ledger, field.name)}
    assert changed == ({} if fate == "unfinished" else {f"bytes_{fate}": 3.0})


def test_an_unknown_fate_is_an_error():
    with pytest.raises(AttributeError):
        Ledger().lost("droped", 3.0)
