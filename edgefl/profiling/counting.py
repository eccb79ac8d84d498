"""Count the operators that the cases of the measuring script execute, as for the steps of methods."""

from __future__ import annotations

from collections import Counter

import torch

from edgefl.cost.measure import NOWHERE, Operator
from edgefl.cost.recorder import Recorder
from edgefl.profiling.measure_device.case import Case


def operators_of(case: Case) -> tuple[Operator, ...]:
    """Return the operators of one run of a case; identical ones are merged.

    >>> from edgefl.profiling.measure_device.main import cases
    >>> [(each.name, each.flops, each.count) for each in operators_of(cases()["linear 64 on 8"])]
    [('mm', 65536, 3)]
    """
    run = case.prepare(lambda *shape: torch.empty(shape, device=NOWHERE))
    with Recorder() as recorder:
        run()
    counts = Counter((each.name, each.flops, each.bytes, each.kind) for each in recorder.records)
    return tuple(Operator(name, flops, moved, count, kind) for (name, flops, moved, kind), count in counts.items())
