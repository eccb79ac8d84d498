"""SCAFFOLD: control variates against client drift."""

from __future__ import annotations

from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.payloads.extra_vector import ScaffoldPayload
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.scaffold import ScaffoldRule
from edgefl.methods.servers.scaffold import Scaffold

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
