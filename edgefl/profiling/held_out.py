"""Training steps of edgefl's models and methods for validating a device profile; its fit uses none of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from edgefl.cost.measure import Operator, measure
from edgefl.methods.build import build_method
from edgefl.methods.local_options import LocalOptions
from edgefl.methods.local_step import Phase, local_step
from edgefl.methods.objectives.base import Batch, Context
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.registry import MODELS, build_model
from edgefl.profiling.measure_device.case import Case, Maker, Run
from edgefl.randomness import generator

SHAPE, CLASSES = (3, 32, 32), 10


class PreparedStep(Protocol):
    """Runs a local step, and calls a function at the start of each of its phases."""

    def __call__(self, entering: Callable[[Phase], None] = ...) -> None:
        """Run the step."""


def _ignored(_phase: Phase) -> None:
    """Ignore the phase."""


@dataclass(frozen=True, slots=True)
class Step:
    """A training step: a model, a method and a batch size."""

    model: str
    method: str
    batch: int

    def __str__(self) -> str:
        return f"{self.model}, {self.method}, batch {self.batch}"

    def operators(self) -> tuple[Operator, ...]:
        """Return the operators that it executes according to the cost model."""
        method = build_method(self.method, LocalOptions())
        adapted = method.objective.adapt(build_model(MODELS[self.model](), SHAPE, CLASSES))
        return measure(adapted, method, adapted.depth, self.batch).operators

    def case(self) -> Case:
        """Return the step as a case for the measuring script."""
        return Case(self._prepare, megabytes=500)

    def _prepare(self, numbers: Maker) -> Run:
        method = build_method(self.method, LocalOptions())
        model = method.objective.adapt(build_model(MODELS[self.model](), SHAPE, CLASSES))
        return prepared_step(method, model, self.batch, numbers)


def prepared_step(method: Method, model: BlockModel, batch: int, numbers: Maker) -> PreparedStep:
    """Prepare a local step on artificial numbers that can be run repeatedly.

    Args:
        method: the method.
        model: the model, adapted by the method's objective.
        batch: the number of images in the minibatch.
        numbers: makes tensors.
    """
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
        client={name: torch.ones(model.classes if name == "label_counts" else ()) for name in sorted(objective.client)},
        alpha=model.depth,
        draws=objective.draw(generator(0, "cost"), batch),
    )
    images = Batch(numbers(batch, *model.sample_shape), torch.arange(batch) % model.classes)
    memory = rule.begin(parameters, {name: vectors[name] for name in sorted(rule.vectors)}, method.local, 1)

    def step(entering: Callable[[Phase], None] = _ignored) -> None:
        # A learning rate of 0 keeps the numbers constant: values that grow or vanish would change the speed.
        local_step(objective, rule, parameters, buffers, images, context, memory, method.local, 0.0, entering=entering)

    return step


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
