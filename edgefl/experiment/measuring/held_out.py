"""Real training steps of edgefl's models and methods, to check a device profile on: its fit has seen none of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from edgefl.experiment.measuring.measure_device.case import Case, Maker, Run
from edgefl.learning.cost.measure import Operator, measure
from edgefl.learning.local_step import local_step
from edgefl.learning.methods.build import build_method
from edgefl.learning.models.registry import MODELS, build_model
from edgefl.learning.objectives.base import Batch, Context
from edgefl.learning.rules.base import LocalOptions
from edgefl.randomness import generator

SHAPE, CLASSES = (3, 32, 32), 10


@dataclass(frozen=True, slots=True)
class Step:
    """A training step by name: a model, a method, a batch size."""

    model: str
    method: str
    batch: int

    def __str__(self) -> str:
        return f"{self.model}, {self.method}, batch {self.batch}"

    def operators(self) -> tuple[Operator, ...]:
        """What the cost model says that it executes."""
        method = build_method(self.method, LocalOptions())
        adapted = method.objective.adapt(build_model(MODELS[self.model](), SHAPE, CLASSES))
        return measure(adapted, method, adapted.depth, self.batch).operators

    def case(self) -> Case:
        """The step as the measuring script times it."""
        return Case(self._prepare, megabytes=500)

    def _prepare(self, numbers: Maker) -> Run:
        method = build_method(self.method, LocalOptions())
        model = method.objective.adapt(build_model(MODELS[self.model](), SHAPE, CLASSES))
        layout, objective, rule = model.layout, method.objective, method.rule
        parameters, buffers = numbers(layout.parameter_count), torch.ones(layout.buffer_count)
        vectors = {name: numbers(layout.parameter_count) for name in sorted(objective.vectors | rule.vectors)}
        context = Context(
            model=model,
            frozen={
                name: layout.weights(vectors.get(name, parameters).clone(), buffers.clone())
                for name in sorted(objective.frozen)
            },
            vectors={name: vectors[name] for name in sorted(objective.vectors)},
            client={name: torch.ones(model.classes) for name in sorted(objective.client)},
            alpha=model.depth,
            draws=objective.draw(generator(0, "cost"), self.batch),
        )
        labels = torch.arange(self.batch) % model.classes
        images = Batch(numbers(self.batch, *model.sample_shape), labels)
        memory = rule.begin(parameters, {name: vectors[name] for name in sorted(rule.vectors)}, method.local, 1)
        # A learning rate of 0 leaves the numbers as they are: values that grow or vanish would change the speed.
        return lambda: local_step(objective, rule, parameters, buffers, images, context, memory, method.local, lr=0.0)


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
"""No model family and no method of these is among the cases of the measuring script."""
