"""The scenario's bandwidth allocation as the network asks for it, and its facts in the log."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgefl.network.allotment import Outlook, Progress, Shares
from edgefl.scheduling.bandwidth.base import BandwidthSpec, Transfers, checked_order, checked_seconds
from edgefl.training.faults import blaming


class Allocation:
    """Answers the network's questions (:class:`~edgefl.network.allotment.Allocator`) with a scenario's allocation.

    Args:
        spec: the allocation.
        label: the method's label, for errors.

    Attributes:
        round: the round of the latest transfer, for errors.
    """

    def __init__(self, spec: BandwidthSpec, label: str) -> None:
        self._spec = spec
        self._label = label
        self.round = 0

    def shares(self, now: float, transfers: Sequence[Progress]) -> Shares:
        """See :class:`~edgefl.network.allotment.Allocator`.

        Raises:
            PartFault: the allocation raised an error, or answered with something else than an order.
        """
        asked = _arrays(now, transfers)
        with blaming(self._label, self.round, "bandwidth allocation"):
            order = checked_order(self._spec.order(asked), len(transfers))

        def lasts(rates: Sequence[float]) -> float:
            with blaming(self._label, self.round, "bandwidth allocation"):
                return checked_seconds(self._spec.lasts(asked, order, np.array(rates)))

        return Shares(order.rank.tolist(), order.weight.tolist(), lasts)


def _arrays(now: float, transfers: Sequence[Progress]) -> Transfers:
    outlooks = [each.outlook for each in transfers]
    return Transfers(
        now,
        bytes=np.array([each.bytes for each in transfers], np.float64),
        left=np.array([each.left for each in transfers], np.float64),
        alone=np.array([each.alone for each in transfers], np.float64),
        up=np.array([each.up for each in outlooks], np.bool_),
        after=np.array([each.after for each in outlooks], np.float64),
        deadline=np.array([each.deadline for each in outlooks], np.float64),
    )


def logged(outlook: Outlook) -> str:
    """An outlook as JSON.

    >>> logged(Outlook(up=True)), logged(Outlook(after=2.5, deadline=9.0))
    ('{"up": true, "after": 0.0}', '{"up": false, "after": 2.5, "deadline": 9.0}')
    """
    facts: dict[str, bool | float] = {"up": outlook.up, "after": outlook.after}
    return json.dumps(facts | ({"deadline": outlook.deadline} if outlook.deadline < math.inf else {}))


def read_outlook(facts: Mapping[str, Any]) -> Outlook:
    """The outlook that :func:`logged` wrote."""
    return Outlook(bool(facts["up"]), float(facts["after"]), float(facts.get("deadline", math.inf)))
