"""FedCS's greedy selection against rounds worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from edgefl.errors import UserError
from edgefl.scheduling.selection.base import Facts, Foreseen, selection

DOWNLOAD = np.array([1.0, 1.0, 1.0, 1.0, 1.0])
COMPUTE = np.array([9.0, 2.0, 4.0, 1.0, 3.0])
UPLOAD = np.array([1.0, 2.0, 1.0, 5.0, 1.0])
"""Alone: 11, 5, 6, 7 and 5 s."""

FACTS = Facts(foreseen=lambda asked: Foreseen(DOWNLOAD[asked], COMPUTE[asked], UPLOAD[asked]))
EVERYONE = np.arange(5)


def pick(cohort, **options):
    selector = selection({"kind": "deadline", **options}).start(0)
    return selector.pick(0, EVERYONE, cohort, FACTS).tolist()


def test_whoever_is_foreseen_in_time_is_picked_quickest_first():
    assert pick(5, deadline=6) == [1, 2, 4]
    assert pick(2, deadline=6) == [1, 4]
    assert pick(5, deadline=20) == [0, 1, 2, 3, 4]


def test_uploads_one_after_another_take_their_turns():
    # 1 or 4 first (5 s each; the first of equals is 1), then 4 (5 + 1), 2 (6 + 1), 0 (10 + 1), 3 (11 + 5).
    assert pick(5, deadline=7, uploads="sequential") == [1, 2, 4]
    assert pick(5, deadline=11, uploads="sequential") == [0, 1, 2, 4]
    assert pick(5, deadline=16, uploads="sequential") == [0, 1, 2, 3, 4]


def test_where_nobody_is_in_time_the_quickest_goes():
    assert pick(3, deadline=0.5) == [1]


def test_only_some_are_asked():
    asked = []

    def foreseen(clients):
        asked.extend(clients.tolist())
        return Foreseen(DOWNLOAD[clients], COMPUTE[clients], UPLOAD[clients])

    selector = selection({"kind": "deadline", "deadline": 100, "asked": 2}).start(3)
    picked = selector.pick(0, EVERYONE, 2, Facts(foreseen=foreseen))
    assert len(asked) == 4
    assert set(picked.tolist()) <= set(asked)


def test_a_world_without_predictions_is_refused():
    with pytest.raises(UserError, match="predicted seconds"):
        selection({"kind": "deadline", "deadline": 1}).start(0).pick(0, EVERYONE, 2, Facts())
