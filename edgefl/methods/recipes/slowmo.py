"""SlowMo: momentum on the server, in units of the gradient."""

from __future__ import annotations

from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.slowmo import SlowMo

METHODS.register("slowmo")(
    Recipe(
        summary="FedAvg with server momentum in units of the gradient",
        paper="Wang et al. 2020 (SlowMo); Ozfatura et al., Alg. 2",
        objective=CrossEntropy,
        rule=Sgd,
        server=SlowMo(),
        weighting="uniform",
    )
)
