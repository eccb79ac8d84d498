"""FjORD: ordered dropout with self-distillation, in networks as wide as each device allows."""

from __future__ import annotations

from edgefl.methods.objectives.fjord import FjORD
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.mean import Mean
from edgefl.methods.submodels.nested_width import NestedWidth

METHODS.register("fjord")(
    Recipe(
        summary="each client trains nested widths of the model, up to the one that its device allows",
        paper="Horvath et al. 2021 (FjORD), Sec. 3 and Alg. 1",
        objective=FjORD,
        rule=Sgd,
        server=Mean(),
        submodels=NestedWidth,
    )
)
