"""FedADC's local rule: the server's momentum, distributed over the client's steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from edgefl.errors import UserError
from edgefl.methods.local_options import LocalOptions
from edgefl.methods.rules.base import LocalRule, stepped_
from edgefl.methods.rules.sgd import direction


class FedAdcRule(LocalRule):
    """Accelerated local steps with drift control (Ozfatura et al., Alg. 3 and 4).

    With m̄ = β_l m_t / H_k, where m_t is the server's momentum of the version the client trains from and H_k this
    client's number of steps, so that each client follows exactly β_l m_t in a round:

    - ``red`` (Nesterov, consecutive): θ' = θ - η m̄; g = ∇f(θ'); θ ← θ' - η g.
    - ``blue`` (heavy ball, simultaneous): g = ∇f(θ); θ ← θ - η (g + m̄).
    - ``double`` (Alg. 4): blue with a local momentum u¹ = g¹, u ← φ u + (1-φ) g in place of g.

    Weight decay is part of g; clipping touches g, never m̄.
    """

    lr_on_device: ClassVar[bool] = True
    vectors: ClassVar[frozenset[str]] = frozenset({"momentum"})

    variant: Literal["red", "blue", "double"] = Field(
        default="red", description="red (Nesterov), blue (heavy ball), or double (blue with a local momentum)"
    )
    beta_l: float = Field(default=0.8, ge=0, lt=1, description="share β_l of the server's momentum in the local steps")
    phi: float = Field(default=0.9, ge=0, lt=1, description="local momentum φ of the variant double")

    def accept(self, options: LocalOptions) -> None:
        """Raise an error for ``momentum``, which the rule's momentum replaces."""
        if options.momentum:
            raise UserError(
                f"FedADC's local steps follow the server's momentum in place of their own, found {options.momentum:g}; "
                "set local: {momentum: 0}, or variant: double with phi for a local momentum",
                field="local.momentum",
            )

    def begin(
        self, received: Tensor, vectors: Mapping[str, Tensor], options: LocalOptions, steps: int
    ) -> dict[str, Tensor]:
        """m̄, and for ``double`` the local momentum and a flag for the first step."""
        memory = {"pull": vectors["momentum"] * (self.beta_l / max(1, steps))}
        if self.variant == "double":
            memory["velocity"] = torch.zeros_like(received)
            memory["fresh"] = torch.ones_like(received[..., :1])
        return memory

    def point(self, parameters: Tensor, memory: dict[str, Tensor], lr: float | Tensor) -> Tensor:
        """θ' = θ - η m̄ for ``red``."""
        if self.variant != "red":
            return parameters
        if isinstance(lr, Tensor):
            return parameters.addcmul(memory["pull"], lr, value=-1)
        return parameters.sub(memory["pull"], alpha=lr)

    def update(
        self, parameters: Tensor, gradient: Tensor, memory: dict[str, Tensor], options: LocalOptions, lr: float | Tensor
    ) -> Tensor:
        """The step from ``parameters`` (θ, not θ') with the gradient at :meth:`point`."""
        start = self.point(parameters, memory, lr)
        step = direction(start, gradient, options)
        if self.variant == "double":
            # The first step is undamped: its weight is 1 while the flag is set, 1 - φ afterwards.
            memory["velocity"] = memory["velocity"] * self.phi + step * (1 - self.phi + self.phi * memory["fresh"])
            memory["fresh"] = torch.zeros_like(memory["fresh"])
            step = memory["velocity"]
        if self.variant != "red":
            step = step + memory["pull"]
        return stepped_(start, step, lr)
