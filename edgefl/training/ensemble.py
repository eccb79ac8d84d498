"""The temporal ensemble: the moving average of the global models."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from edgefl.options import Component


class EnsembleSpec(Component):
    """A moving average of the global models, evaluated in addition to the newest one; it does not change training."""

    decay: float = Field(
        default=0.99, ge=0, lt=1, description="share d of the average in ē ← d ē + (1-d) θ; 0.99 looks back 100 rounds"
    )


class TemporalEnsemble:
    """ē_t = Σ_{s≤t} d^{t-s} θ_s / Σ_{s≤t} d^{t-s}: the weights sum to 1 from the first model on.

    Without the division, the first model would have the share d^t, which is most of the average in the first 1/(1-d)
    rounds. Buffers are averaged like parameters.

    Args:
        decay: d in [0, 1).

    >>> ensemble = TemporalEnsemble(0.5)
    >>> for number in (1.0, 4.0):
    ...     ensemble.add(torch.tensor([number]))
    >>> ensemble.vector
    tensor([3.])
    """

    def __init__(self, decay: float) -> None:
        self._decay = decay
        self._weight = 0.0
        self._vector: Tensor | None = None

    def add(self, model: Tensor) -> None:
        """Add the newest model ``[size]``."""
        # With w the sum of weights, ē + (θ - ē)/w is the same average, and it is exact if the model does not change.
        self._weight = self._decay * self._weight + 1.0
        before = self._vector
        self._vector = model.clone() if before is None else before + (model - before) / self._weight

    @property
    def vector(self) -> Tensor | None:
        """The average ``[size]``; ``None`` before the first model."""
        return self._vector

    def packed(self) -> dict[str, Tensor]:
        """The complete state."""
        if self._vector is None:
            return {}
        return {"average": self._vector, "weight": torch.tensor([self._weight], dtype=torch.float64)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore a state from :meth:`packed`."""
        self._vector = tensors.get("average")
        self._weight = float(tensors["weight"]) if "weight" in tensors else 0.0
