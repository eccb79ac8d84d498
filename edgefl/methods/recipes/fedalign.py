"""FedAlign: FedAvg with a Lipschitz regulariser on the last block."""

from __future__ import annotations

from edgefl.methods.objectives.fedalign import FedAlign
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.mean import Mean

METHODS.register("fedalign")(
    Recipe(
        summary="aligns the Lipschitz constants of the last block and its narrower sub-block",
        paper="Mendieta et al. 2022 (FedAlign), Eqs. 5-7",
        objective=FedAlign,
        rule=Sgd,
        server=Mean(),
    )
)
