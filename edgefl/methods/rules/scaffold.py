"""SCAFFOLD's local rule: the gradient corrected by control variates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from edgefl.errors import UserError
from edgefl.methods.local_options import LocalOptions
from edgefl.methods.rules.base import LocalRule, stepped_
from edgefl.methods.rules.sgd import direction


class ScaffoldRule(LocalRule):
    """y ← y - η (g - c_k + c) (Karimireddy et al. 2020, Alg. 1, line 10); clipping touches g, not the correction."""

    lr_on_device: ClassVar[bool] = True
    vectors: ClassVar[frozenset[str]] = frozenset({"control", "client_control"})

    def accept(self, options: LocalOptions) -> None:
        """Raise an error for momentum: the control variate is the mean gradient only for plain steps."""
        if options.momentum:
            raise UserError(
                f"SCAFFOLD computes a client's mean gradient from its steps, which momentum {options.momentum:g} would "
                "distort; set local: {momentum: 0}",
                field="local.momentum",
            )

    def begin(
        self, received: Tensor, vectors: Mapping[str, Tensor], options: LocalOptions, steps: int
    ) -> dict[str, Tensor]:
        """The correction c - c_k, which is constant in a round."""
        return {"correction": vectors["control"] - vectors["client_control"]}

    def update(
        self, parameters: Tensor, gradient: Tensor, memory: dict[str, Tensor], options: LocalOptions, lr: float | Tensor
    ) -> Tensor:
        """One corrected step."""
        return stepped_(parameters, direction(parameters, gradient, options).add_(memory["correction"]), lr)
