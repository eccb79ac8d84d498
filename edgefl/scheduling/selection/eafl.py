"""Selection by utility and the charge of batteries: EAFL."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.scheduling.selection.base import SELECTORS, Facts
from edgefl.scheduling.selection.oort import Oort, OortSelector


class EaflSelector(OortSelector):
    """EAFL (Arouj and Abdelmoniem 2022, Eq. 1): reward(i) = f · Util(i) + (1 - f) · power(i).

    Util is Oort's utility with its penalty for slow clients, and power(i) the level of the battery minus what the next
    round is expected to use. Rewards take the place of Oort's utilities; exploration and pacer stay Oort's.

    Interpretations: level and use are parts of the battery's capacity; a device without a battery has the level 1 and
        uses nothing; the expected use is that of the round with the whole model, alone on the client's path (download,
        computation, upload, and idle watts during transfers); a negative power counts as 0, because rewards are
        chances of being drawn.
    """

    reads = OortSelector.reads | {"charge"}

    _spec: Eafl

    def rewards(self, clients: NDArray[np.int64], facts: Facts) -> NDArray[np.float64]:
        charge = facts.charge(clients)
        power = np.maximum(charge.level - charge.used, 0.0)
        return np.asarray(self._spec.f * self.utilities(clients) + (1 - self._spec.f) * power)


@SELECTORS.register("eafl")
class Eafl(Oort):
    """EAFL (Arouj and Abdelmoniem 2022): Oort's utility and the charge that remains in the battery."""

    f: float = Field(default=0.25, ge=0, le=1, description="weight of Oort's utility; 1 - f is that of the battery")

    def start(self, seed: int) -> EaflSelector:
        return EaflSelector(seed, self)
