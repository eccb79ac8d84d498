"""FedGKD's server: the mean, and a teacher computed from the last models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.servers.base import SERVER_UPDATES, RoundFacts, ServerUpdate
from edgefl.methods.servers.mean import mean_delta


@SERVER_UPDATES.register("fedgkd")
class FedGkdServer(ServerUpdate):
    """θ_{t+1} = θ_t + Σ_k w_k δ_k; teacher = mean of the last M trained models, the newest included (Yao et al. 2021).

    ``teaching`` is one number, 0 in the first round and 1 after it. ``model 1``, ``model 2``, … are the last models,
    newest first. The first model, which nobody has trained, is not one of them, as in the authors' code.
    """

    broadcasts: ClassVar[tuple[str, ...]] = ("teacher", "teaching")

    buffer: int = Field(default=5, ge=1, description="number M of global models in the teacher")

    @property
    def carried_by(self) -> Mapping[str, str | None]:
        """The mean of one model is that model; ``teaching`` follows from the round number."""
        return {"teacher": "teacher" if self.buffer > 1 else "model", "teaching": None}

    def begin(self, parameters: Tensor) -> dict[str, Tensor]:
        """The first model is its own teacher, with ``teaching`` 0."""
        return {"teacher": parameters, "teaching": torch.zeros_like(parameters[:1])}

    def update(
        self,
        parameters: Tensor,
        deltas: Tensor,
        weights: Tensor,
        state: dict[str, Tensor],
        facts: RoundFacts,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See :class:`ServerUpdate`."""
        after = parameters + mean_delta(deltas, weights)
        before = [state[f"model {age}"] for age in range(1, self.buffer) if f"model {age}" in state]
        models = [after, *before]
        teacher = torch.stack(models).mean(dim=0)
        kept = {f"model {age}": model for age, model in enumerate(models, start=1)}
        return after, {"teacher": teacher, "teaching": torch.ones_like(parameters[:1]), **kept}
