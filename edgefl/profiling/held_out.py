"""Training steps of edgefl's models and methods for validating a device profile; its fit uses none of them."""

from dataclasses import dataclass

import torch

from edgefl.cost.measure import Operator, measure
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import local_step
from edgefl.methods.parts.objective import Batch, Context
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.registry import MODELS, build_model
from edgefl.profiling.measure_device.timing import Case, Maker, Run
from edgefl.randomness import generator

SHAPE, CLASSES = (3, 32, 32), 10


@dataclass(frozen=True, slots=True)
class Step:
    """A training step: a model, a method and a batch size."""

    model: str
    method: str
    batch: int

    def __str__(self) -> str:
        return f"{self.model}, {self.method}, batch {self.batch}"

    def operators(self) -> tuple[Operator, ...]:
        """According to the cost model."""
        method, model = self._parts()
        return measure(model, method, model.depth, self.batch).operators

    def case(self) -> Case:
        return Case(self._prepare, megabytes=500)

    def _parts(self) -> tuple[Method, BlockModel]:
        method = build_method(self.method, LocalOptions())
        return method, method.objective.adapt(build_model(MODELS[self.model](), SHAPE, CLASSES))

    def _prepare(self, numbers: Maker) -> Run:
        method, model = self._parts()
        layout, objective, rule = model.layout, method.objective, method.rule
        parameters, buffers = numbers(layout.parameter_count), torch.ones(layout.buffer_count)
        vectors = {name: numbers(layout.parameter_count) for name in sorted(objective.vectors | rule.vectors)}
        context = Context(
            model=model,
            frozen={
                name: layout.frozen(vectors.get(name, parameters).clone(), buffers.clone())
                for name in sorted(objective.frozen)
            },
            vectors={name: vectors[name] for name in sorted(objective.vectors)},
            client={
                name: torch.ones(model.classes if name == "label_counts" else ()) for name in sorted(objective.client)
            },
            alpha=model.depth,
            draws=objective.draw(generator(0, "cost"), self.batch),
        )
        images = Batch(numbers(self.batch, *model.sample_shape), torch.arange(self.batch) % model.classes)
        memory = rule.begin(parameters, {name: vectors[name] for name in sorted(rule.vectors)}, method.local, 1)
        # A learning rate of 0 keeps the numbers constant: values that grow or vanish would change the speed.
        return lambda: local_step(objective, rule, parameters, buffers, images, context, memory, method.local, 0.0)


HELD_OUT = (
    Step("fedadc_cnn", "moon", 16),
    Step("fedadc_cnn", "fedmlb", 8),
    Step("vgg9", "ntd", 4),
    Step("vgg9", "feddyn", 16),
    Step("resnet56", "moon", 4),
    Step("resnet56", "ntd", 16),
    Step("shufflenet", "feddyn", 8),
    Step("shufflenet", "ntd", 32),
)
"""The measuring script's cases contain none of these model families and methods."""
