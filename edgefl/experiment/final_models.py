"""The models of a run directory: written at the end of a run, which also tests the last one on each client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from edgefl.data.federated import FederatedData
from edgefl.errors import UserError
from edgefl.files import write_file
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.pretrained import places_of_names, state_of
from edgefl.record import SeedPaths
from edgefl.record.events import Listener
from edgefl.record.rounds import ClientRow
from edgefl.record.summary import ClientResult
from edgefl.record.tables import write_clients
from edgefl.scenario import Scenario
from edgefl.training.core import TrainingCore
from edgefl.training.faults import blaming
from edgefl.training.kept_states import KeptModels
from edgefl.training.learner import MethodLearner
from edgefl.training.personalisation import ClientMetric, metric_of_each, metric_of_one, personalised_metric

_FORMAT = {"format": "pt"}


def kept_models_of(scenario: Scenario) -> KeptModels | None:
    """The models that a learner must keep for this scenario, if there are any."""
    ensemble, clients = scenario.evaluation.ensemble, scenario.keep_models == "clients"
    return KeptModels(ensemble, clients=clients) if ensemble or clients else None


@dataclass
class FinalModels(Listener):
    """Writes the models of a run that has ended, with what was kept, and tests the last one on each client."""

    scenario: Scenario
    paths: SeedPaths
    core: TrainingCore
    data: FederatedData
    seed: int
    method: Method
    learner: MethodLearner
    kept_models: KeptModels | None
    results: dict[str, ClientResult] = field(default_factory=dict)

    def simulated(self, rounds: int) -> None:
        final = self.learner.model(rounds)
        model = self.method.objective.adapt(self.core.model)
        if self.scenario.keep_models != "none":
            write_model(final, model, self.paths.final_model)
        if self.kept_models is not None and self.scenario.keep_models == "clients":
            write_client_models(self.kept_models.local, model, self.paths.client_models)
        self._test_on_clients(final, rounds)

    def _test_on_clients(self, final: Tensor, rounds: int) -> None:
        """Test the final model on each client's own part of a partitioned test set, personalised too if asked for."""
        method, data, personalisation = self.method, self.data, self.scenario.personalisation
        if data.evaluation_shards is None:
            return
        own = self.learner.local_parts()  # a client that never trained has the server's

        def model_of(client: int) -> Tensor:
            return model.layout.with_local_part(final, own[client]) if client in own else final

        with blaming(method.label, max(rounds - 1, 0), "evaluation on each client"):
            model = method.objective.adapt(self.core.model).to(final.device)
            mode = method.objective.evaluation_mode(model)
            tests = data.evaluation, data.evaluation_shards, mode
            shared = metric_of_each(model_of, model, *tests) if own else metric_of_one(final, model, *tests)
        self.results["clients"] = ClientResult(**_figures(shared))
        personal = None
        if personalisation is not None:
            engine = self.core.engine_for(model)
            try:
                with blaming(method.label, max(rounds - 1, 0), "personalisation"):
                    personal = personalised_metric(
                        personalisation,
                        method,
                        final,
                        rounds,
                        model_of=model_of,
                        model=model,
                        data=data,
                        jobs=self.core.data,
                        engine=engine,
                        seed=self.seed,
                    )
            finally:
                engine.close()
            self.results["personalisation"] = ClientResult(kind=personalisation.kind, **_figures(personal))
        figures = zip(data.sizes, shared.tested, shared.each, personal.each if personal else repeat(None), strict=False)
        is_accuracy = model.task.measured.is_accuracy
        rows = [
            ClientRow(client, *row, *(row[2:] if is_accuracy else (None, None))) for client, row in enumerate(figures)
        ]
        write_clients(rows, self.paths.clients)


def _figures(metric: ClientMetric) -> dict[str, float]:
    return {"mean": metric.mean, "cumulative": metric.cumulative, "worst_tenth": metric.worst_tenth}


def write_model(vector: Tensor, model: BlockModel, path: Path) -> None:
    """Write a model ``[size]`` with the names of :func:`state_of`, so that its own class loads it."""
    write_file(path, save(state_of(model, vector), _FORMAT))


def write_client_models(models: Mapping[int, Tensor], model: BlockModel, path: Path) -> None:
    """Write local models by client, with the names of :func:`write_model` after the client's number and a dot."""
    states = {client: state_of(model, vector) for client, vector in sorted(models.items())}
    named = {f"{client}.{name}": each for client, state in states.items() for name, each in state.items()}
    write_file(path, save(named, _FORMAT))


def read_model(path: Path, model: BlockModel) -> Tensor:
    """Read a model ``[size]`` that :func:`write_model` wrote."""
    return _vector(_tensors(path), model, path)


def read_client_models(path: Path, model: BlockModel) -> dict[int, Tensor]:
    """Read the local models that :func:`write_client_models` wrote, by client."""
    models: dict[int, dict[str, Tensor]] = {}
    for key, tensor in _tensors(path).items():
        client, _, name = key.partition(".")
        models.setdefault(int(client), {})[name] = tensor
    return {client: _vector(tensors, model, path) for client, tensors in sorted(models.items())}


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise UserError(f"the models cannot be read: {error}", file=str(path)) from None


def _vector(tensors: Mapping[str, Tensor], model: BlockModel, path: Path) -> Tensor:
    places = places_of_names(model)
    expected = {name: entry.shape for name, entry in places.items() if entry is not None}
    found = {name: each.shape for name, each in tensors.items() if places.get(name, path) is not None}
    if found != expected:
        name = min(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        shapes = [None if shape is None else list(shape) for shape in (expected.get(name), found.get(name))]
        message = "expected the shape {}, found {}; the file belongs to another model".format(*shapes)
        raise UserError(message, file=str(path), field=name)
    blocks: list[dict[str, Tensor]] = [{} for _ in model.layout.block_names]
    for name, each in places.items():
        if each is not None:
            blocks[each.block][each.name] = tensors[name]
    return model.layout.flatten(blocks)
