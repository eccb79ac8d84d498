"""The end of a run with training: write its models, and test the last one on each client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgefl.experiment.client_metric import metric_of_clients
from edgefl.methods.recipe import Method
from edgefl.record import SeedPaths
from edgefl.record.listener import Listener
from edgefl.record.summary import ClientResult
from edgefl.scenario import Scenario

if TYPE_CHECKING:
    from edgefl.data.federated import FederatedData
    from edgefl.training.core import TrainingCore
    from edgefl.training.kept_models import KeptModels
    from edgefl.training.learner import MethodLearner


def kept_models_of(scenario: Scenario) -> KeptModels:
    """What a learner must keep for this scenario."""
    from edgefl.training.kept_models import KeptModels

    return KeptModels(scenario.evaluation.ensemble, clients=scenario.keep_models == "clients")


@dataclass
class Conclusion(Listener):
    """The end of one method's run with one seed.

    Attributes:
        scenario: the scenario.
        paths: the run's files.
        core: data, skeletons and engine of the seed.
        data: the clients' data.
        seed: the seed.
        method: the trained method.
        learner: the learner that trained it; ``kept_models`` contains what it kept.
        results: the additional figures of the summary.
    """

    scenario: Scenario
    paths: SeedPaths
    core: TrainingCore
    data: FederatedData
    seed: int
    method: Method
    learner: MethodLearner
    kept_models: KeptModels
    results: dict[str, ClientResult] = field(default_factory=dict)

    def simulated(self, rounds: int) -> None:
        """Write models and tables as the run's files."""
        from edgefl.experiment.models import write_clients, write_model

        final = self.learner.model(rounds)
        model = self.method.objective.adapt(self.core.model)
        if self.scenario.keep_models != "none":
            write_model(final, model.layout, self.paths.final_model)
        if self.scenario.keep_models == "clients":
            write_clients(self.kept_models.local, model.layout, self.paths.client_models)
        self.results = metric_of_clients(
            self.method,
            final,
            rounds,
            core=self.core,
            data=self.data,
            seed=self.seed,
            personalisation=self.scenario.personalisation,
            path=self.paths.clients,
            own=self.learner.local_parts(),
        )
