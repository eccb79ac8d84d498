"""What secure aggregation sent and computed in a run, for ``summary.json``."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from edgefl.privacy.messages import Sizes, formulas, masked_bytes, sizes_of
from edgefl.privacy.secure_aggregation import SecureAggregation


class Tally:
    """Messages and seconds by stage, primitives of clients and of the server, over all rounds of a run.

    Of a client are the numbers of each primitive that any client computed in a round, one for each that differs.
    """

    def __init__(self) -> None:
        self.server: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._messages: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        self._clients: defaultdict[str, set[int]] = defaultdict(set)
        self._rounds = self._trips = self._failed = 0

    def moved(self, stage: str, way: str, bytes: int) -> None:
        """A message of a stage has arrived."""
        self._messages[stage, way][bytes] += 1

    def ended(self, clients: Collection[Mapping[str, int]], *, trips: int, failed: bool) -> None:
        """A round has ended, in which these clients computed so many primitives each."""
        self._rounds, self._trips, self._failed = self._rounds + 1, self._trips + trips, self._failed + failed
        for name in {name for each in clients for name in each}:
            self._clients[name] |= {each.get(name, 0) for each in clients}

    def written(self, spec: SecureAggregation, cohort: int, entries: int) -> dict[str, Any]:
        """As data of ``summary.json``, for a cohort that adds so many numbers."""
        stages = []
        for stage in spec.stages:
            row: dict[str, Any] = {"stage": stage, "seconds": self.seconds[stage]}
            for way in ("down", "up"):
                sizes = self._messages[stage, way]
                row[f"messages_{way}"] = sizes.total()
                row[f"bytes_{way}"] = sum(size * count for size, count in sizes.items())
                row[f"{way}_bytes_each"] = sorted(sizes)
            stages.append(row)
        sizes_of_parts = {} if spec.light else dict(zip(Sizes._fields[:4], sizes_of(spec), strict=False))
        return {
            "kind": spec.kind,
            "rounds": self._rounds,
            "failed": self._failed,
            "round_trips": self._trips,
            "stages": stages,
            "parts": {"masked_vector": masked_bytes(spec, cohort, entries), **sizes_of_parts},
            "of_a_user": formulas(spec, cohort, entries),
            "work_of_a_client": {name: sorted(counts) for name, counts in sorted(self._clients.items())},
            "work_of_the_server": dict(sorted(self.server.items())),
        }
