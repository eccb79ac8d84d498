"""SCAFFOLD: control variates against client drift."""

from __future__ import annotations

from edgefl.learning.methods.recipe import METHODS, Recipe
from edgefl.learning.objectives.cross_entropy import CrossEntropy
from edgefl.learning.payloads.extra_vector import ScaffoldPayload
from edgefl.learning.rules.scaffold import ScaffoldRule
from edgefl.learning.servers.scaffold import Scaffold

METHODS.register("scaffold")(
    Recipe(
        summary="control variates correct each local step for the client's own drift",
        paper="Karimireddy et al. 2020 (SCAFFOLD), Alg. 1, option II",
        objective=CrossEntropy,
        rule=ScaffoldRule,
        server=Scaffold(),
        payload=ScaffoldPayload,
        weighting="uniform",
        server_choice=False,
        server_reason="its clients correct their steps by that server's control variate",
    )
)
