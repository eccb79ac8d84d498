"""TimelyFL: each client trains and returns as many of the last blocks as it completes by the common finish."""

from __future__ import annotations

from edgefl.methods.common_finish import CommonFinish
from edgefl.methods.objectives.timelyfl import TimelyFL
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.mean import Mean

METHODS.register("timelyfl")(
    Recipe(
        summary="fast clients train more epochs and slow ones only the last blocks, to end by a common finish",
        paper="Zhang et al. 2023 (TimelyFL), Alg. 1-3",
        objective=TimelyFL,
        rule=Sgd,
        server=Mean(),
        common_finish=CommonFinish(share=0.5, unit="epochs", drop_late=True),
    )
)
