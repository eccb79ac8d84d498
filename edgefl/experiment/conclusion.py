"""The end of a run with training: write its models, and test the last one on each client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgefl.experiment.client_accuracy import accuracy_of_clients
from edgefl.methods.recipe import Method
from edgefl.record import SeedPaths
from edgefl.record.summary import ClientResult
from edgefl.scenario import Scenario

if TYPE_CHECKING:
    from edgefl.data.federated import FederatedData
    from edgefl.training.core import TrainingCore
    from edgefl.training.keepsakes import Keepsakes
    from edgefl.training.learner import MethodLearner


def keepsakes_of(scenario: Scenario) -> Keepsakes:
    """What a learner must keep for this scenario."""
    from edgefl.training.keepsakes import Keepsakes

    return Keepsakes(scenario.evaluation.ensemble, clients=scenario.keep_models == "clients")


@dataclass(frozen=True)
class Conclusion:
    """The end of one method's run with one seed.

    Attributes:
        core: data, skeletons and engine of the seed.
        data: the clients' data.
        seed: the seed.
        method: the trained method.
        learner: the learner that trained it; ``keepsakes`` contains what it kept.
        rounds: rounds of the run.
    """

    core: TrainingCore
    data: FederatedData
    seed: int
    method: Method
    learner: MethodLearner
    keepsakes: Keepsakes
    rounds: int

    def write(self, scenario: Scenario, paths: SeedPaths) -> dict[str, ClientResult]:
        """Write models and tables as the run's files; return the additional figures of the summary."""
        from edgefl.experiment.models import write_clients, write_model

        final = self.learner.model(self.rounds)
        model = self.method.objective.adapt(self.core.model)
        if scenario.keep_models != "none":
            write_model(final, model.layout, paths.final_model)
        if scenario.keep_models == "clients":
            write_clients(self.keepsakes.local, model.layout, paths.client_models)
        return accuracy_of_clients(
            self.method,
            final,
            self.rounds,
            core=self.core,
            data=self.data,
            seed=self.seed,
            personalisation=scenario.personalisation,
            path=paths.clients,
        )
