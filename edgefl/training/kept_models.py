"""Optional values that a learner keeps for later analysis: the temporal ensemble and the clients' last models."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from edgefl.options import Component

_PREFIX = "kept_models/"


class EnsembleSpec(Component):
    """A moving average of the global models, evaluated in addition to the newest one; it does not change training."""

    decay: float = Field(
        default=0.99, ge=0, lt=1, description="share d of the average in ē ← d ē + (1-d) θ; 0.99 looks back 100 rounds"
    )


class TemporalEnsemble:
    """ē_t = Σ_{s≤t} d^{t-s} θ_s / Σ_{s≤t} d^{t-s}: the weights sum to 1 from the first model on.

    Without the division, the first model would have the share d^t, which is most of the average in the first 1/(1-d)
    rounds. Buffers are averaged like parameters.

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
        # With w the sum of weights, ē + (θ - ē)/w is the same average, and it is exact if the model does not change.
        self._weight = self._decay * self._weight + 1.0
        before = self._vector
        self._vector = model.clone() if before is None else before + (model - before) / self._weight

    @property
    def vector(self) -> Tensor | None:
        return self._vector

    def packed(self) -> dict[str, Tensor]:
        if self._vector is None:
            return {}
        return {"average": self._vector, "weight": torch.tensor([self._weight], dtype=torch.float64)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self._vector = tensors.get("average")
        self._weight = float(tensors["weight"]) if "weight" in tensors else 0.0


class KeptModels:
    """The moving average of the global models and the local models ``[size]`` of the last round; each is optional."""

    def __init__(self, ensemble: EnsembleSpec | None = None, *, clients: bool = False) -> None:
        self._ensemble = None if ensemble is None else TemporalEnsemble(ensemble.decay)
        self._clients = clients
        self.local: dict[int, Tensor] = {}

    @property
    def average(self) -> Tensor | None:
        """The moving average ``[size]`` of all versions so far, if one is kept."""
        return None if self._ensemble is None else self._ensemble.vector

    def aggregated(self, model: Tensor, local: Mapping[int, Tensor]) -> None:
        if self._ensemble is not None:
            self._ensemble.add(model)
        if self._clients and local:
            self.local = dict(local)

    def packed(self) -> dict[str, Tensor]:
        tensors = {} if self._ensemble is None else self._ensemble.packed()
        tensors |= {f"client/{client}": model for client, model in self.local.items()}
        return {_PREFIX + name: tensor for name, tensor in tensors.items()}

    def restore(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        own = {name.removeprefix(_PREFIX): each for name, each in tensors.items() if name.startswith(_PREFIX)}
        if self._ensemble is not None:
            self._ensemble.restore({name: each if name == "weight" else each.to(device) for name, each in own.items()})
        self.local = {
            int(name.removeprefix("client/")): each.to(device)
            for name, each in own.items()
            if name.startswith("client/")
        }
