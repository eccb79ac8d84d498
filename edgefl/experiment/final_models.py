"""The models of a run directory: written at the end of a run, which also tests the last one on each client."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from edgefl.errors import UserError
from edgefl.files import write_file
from edgefl.methods.recipe import Method
from edgefl.models.layout import Layout
from edgefl.models.pretrained import names_in, recorded_names
from edgefl.record import SeedPaths
from edgefl.record.events import Listener
from edgefl.record.rounds import ClientRow
from edgefl.record.summary import ClientResult
from edgefl.record.tables import write_clients
from edgefl.scenario import Scenario
from edgefl.training.faults import blaming

if TYPE_CHECKING:
    from edgefl.data.federated import FederatedData
    from edgefl.training.core import TrainingCore
    from edgefl.training.kept_states import KeptModels
    from edgefl.training.learner import MethodLearner
    from edgefl.training.personalisation import ClientMetric


def kept_models_of(scenario: Scenario) -> KeptModels | None:
    """The models that a learner must keep for this scenario, if there are any."""
    from edgefl.training.kept_states import KeptModels

    ensemble, clients = scenario.evaluation.ensemble, scenario.keep_models == "clients"
    return KeptModels(ensemble, clients=clients) if ensemble or clients else None


@dataclass
class FinalModels(Listener):
    """Writes the models of one run when it has ended, and tests the last one on each client.

    ``learner`` trained ``method``, and ``kept_models`` contains what it kept. ``results`` are additional figures of the
    summary.
    """

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
            own = self.core.model.layout, self.scenario.model.spec.tensor_name
            write_model(final, model.layout, self.paths.final_model, file_names(model.layout, *own))
        if self.kept_models is not None and self.scenario.keep_models == "clients":
            write_client_models(self.kept_models.local, model.layout, self.paths.client_models)
        self._test_on_clients(final, rounds)

    def _test_on_clients(self, final: Tensor, rounds: int) -> None:
        """Test the final model on each client's own part of a partitioned test set, personalised too if asked for."""
        method, data, personalisation = self.method, self.data, self.scenario.personalisation
        if data.evaluation_shards is None:
            return
        from edgefl.training.personalisation import metric_of_each, metric_of_one, personalised_metric

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


def file_names(layout: Layout, own: Layout, tensor_name: Callable[[str, str], str]) -> dict[str, str]:
    """The name of each ``block.tensor`` in the file of a model: what the state dict of the scenario's own module has.

    ``layout`` is that of the model that a method trains, ``own`` that of the scenario's, whose tensors ``tensor_name``
    names; what the method added keeps its ``block.tensor``.
    """
    names = {key: tensor_name(block, name) for key, (block, name, _) in own.names.items()}
    return {name: names.get(name, name) for name in layout.names}


def write_model(vector: Tensor, layout: Layout, path: Path, names: Mapping[str, str] | None = None) -> None:
    """Write a model ``[size]`` as tensors named ``block.tensor``, or as ``names`` says, so that its own class loads it.

    The metadata of the file has the ``block.tensor`` of each name that is another one.
    """
    names = names or {}
    tensors = {names.get(name, name): tensor for name, tensor in named(vector, layout).items()}
    content = save(tensors, {"format": "pt", **recorded_names(names)})
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))  # else random
    ordered = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(length)
    write_file(path, content[:8] + ordered + content[8 + length :])


def write_client_models(models: Mapping[int, Tensor], layout: Layout, path: Path) -> None:
    """Write local models by client, as tensors named ``client.block.tensor``."""
    tensors = {
        f"{client}.{name}": tensor
        for client, vector in sorted(models.items())
        for name, tensor in named(vector, layout).items()
    }
    write_file(path, save(tensors, {"format": "pt"}))


def named(vector: Tensor, layout: Layout) -> dict[str, Tensor]:
    """Return copies of a model's tensors in main memory, by ``block.tensor``."""
    weights = layout.weights(*layout.split(vector))
    return {
        f"{block}.{name}": tensor.detach().cpu().contiguous().clone()
        for block, tensors in zip(layout.block_names, weights, strict=True)
        for name, tensor in tensors.items()
    }


def read_model(path: Path, layout: Layout) -> Tensor:
    """Read a model ``[size]`` that :func:`write_model` wrote."""
    return _vector(_tensors(path), layout, path)


def read_client_models(path: Path, layout: Layout) -> dict[int, Tensor]:
    """Read the local models that :func:`write_client_models` wrote, by client."""
    models: dict[int, dict[str, Tensor]] = {}
    for key, tensor in _tensors(path).items():
        client, _, name = key.partition(".")
        models.setdefault(int(client), {})[name] = tensor
    return {client: _vector(tensors, layout, path) for client, tensors in sorted(models.items())}


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        names = names_in(path)
        return {names.get(name, name): tensor for name, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise UserError(f"the models cannot be read: {error}", file=str(path)) from None


def _vector(tensors: Mapping[str, Tensor], layout: Layout, path: Path) -> Tensor:
    expected = {key: shape for key, (_, _, shape) in layout.names.items()}
    found = {name: tensor.shape for name, tensor in tensors.items()}
    if found != expected:
        name = min(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        shapes = [None if shape is None else list(shape) for shape in (expected.get(name), found.get(name))]
        message = "expected the shape {}, found {}; the file belongs to another model".format(*shapes)
        raise UserError(message, file=str(path), field=name)
    blocks: list[dict[str, Tensor]] = [{} for _ in layout.block_names]
    for each in layout.entries:
        blocks[each.block][each.name] = tensors[f"{layout.block_names[each.block]}.{each.name}"]
    return layout.flatten(blocks)
