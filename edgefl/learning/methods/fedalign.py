"""FedAlign: FedAvg with a Lipschitz regulariser on the last block."""

from __future__ import annotations

from edgefl.learning.methods.recipe import METHODS, Recipe
from edgefl.learning.objectives.fedalign import FedAlign
from edgefl.learning.rules.sgd import Sgd
from edgefl.learning.servers.mean import Mean

METHODS.register("fedalign")(
    Recipe(
        summary="aligns the Lipschitz constants of the last block and its narrower sub-block",
        paper="Mendieta et al. 2022 (FedAlign), Eqs. 5-7",
        objective=FedAlign,
        rule=Sgd,
        server=Mean(),
    )
)
