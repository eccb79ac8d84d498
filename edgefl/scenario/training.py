"""The ``training:`` and ``evaluation:`` sections of a scenario."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgefl.methods.codecs.choice import Codecs
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.options import Options
from edgefl.scenario.components import Bandwidth, Named, Selection
from edgefl.scheduling.bandwidth.base import bandwidth
from edgefl.scheduling.selection.base import selection
from edgefl.training.engine_spec import EngineChoice, EngineSpec
from edgefl.training.kept_models import EnsembleSpec


class TrainingSpec(Options):
    """The number of rounds, the cohort of each round, and a client's local training."""

    rounds: int = Field(
        ge=1, le=10_000_000, description="maximum number of aggregations; a budget may end the run earlier"
    )
    cohort: int = Field(ge=1, description="clients per round, at most data.clients")
    selection: Selection = Field(
        default=Named("uniform", selection("uniform")), description="how the cohort is selected: a kind and its options"
    )
    bandwidth: Bandwidth = Field(
        default=Named("equal", bandwidth("equal")),
        description="how the server divides its bandwidth among transfers: a kind and its options",
    )
    local: LocalOptions = Field(default_factory=LocalOptions, description="a client's local training")
    engine: EngineChoice = Field(default_factory=EngineSpec, description="how jobs are trained: a kind and its options")
    codec: Codecs = Field(default_factory=Codecs, description="how uploads and downloads are encoded")


class EvaluationSpec(Options):
    """When, and on which data, the server's model is evaluated."""

    every: int = Field(default=1, ge=1, description="rounds between evaluations; the last model is always evaluated")
    split: Literal["test", "validation"] = Field(
        default="test", description="test, or the validation part held out of the training data (for tuning)"
    )
    optimum: bool = Field(
        default=False,
        description="compare the seconds of each round with the least possible ones, if all costs are known",
    )
    ensemble: EnsembleSpec | None = Field(
        default=None, description="also evaluate the moving average of the global models; null: no"
    )
