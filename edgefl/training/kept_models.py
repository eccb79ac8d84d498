"""Optional values that a learner keeps for later analysis; training does not need them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from edgefl.training.ensemble import EnsembleSpec, TemporalEnsemble

_PREFIX = "kept_models/"


class KeptModels:
    """The moving average of the global models and the local models of the last round; each is optional.

    Args:
        ensemble: how models are averaged; ``None``: no average.
        clients: whether to keep the local models of the latest aggregation.

    Attributes:
        local: the local models ``[size]`` in the latest version, by client.
    """

    def __init__(self, ensemble: EnsembleSpec | None = None, *, clients: bool = False) -> None:
        self._ensemble = None if ensemble is None else TemporalEnsemble(ensemble.decay)
        self._clients = clients
        self.local: dict[int, Tensor] = {}

    @property
    def average(self) -> Tensor | None:
        """The moving average ``[size]`` of all versions so far, if one is kept."""
        return None if self._ensemble is None else self._ensemble.vector

    def aggregated(self, model: Tensor, local: Mapping[int, Tensor]) -> None:
        """Record a new model and the local models, by client, that it was computed from."""
        if self._ensemble is not None:
            self._ensemble.add(model)
        if self._clients and local:
            self.local = dict(local)

    def packed(self) -> dict[str, Tensor]:
        """Tensors by name, for a checkpoint."""
        tensors = {} if self._ensemble is None else self._ensemble.packed()
        tensors |= {f"client/{client}": model for client, model in self.local.items()}
        return {_PREFIX + name: tensor for name, tensor in tensors.items()}

    def restore(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        """Restore the values that :meth:`packed` returned from ``tensors``, on ``device``."""
        own = {name.removeprefix(_PREFIX): each for name, each in tensors.items() if name.startswith(_PREFIX)}
        if self._ensemble is not None:
            self._ensemble.restore({name: each if name == "weight" else each.to(device) for name, each in own.items()})
        self.local = {
            int(name.removeprefix("client/")): each.to(device)
            for name, each in own.items()
            if name.startswith("client/")
        }
