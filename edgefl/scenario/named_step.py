"""A single training step by name, as the command line and tables of measured times name it."""

from __future__ import annotations

from typing import Any

from edgefl.errors import UserError, nearest
from edgefl.methods.build import build_method
from edgefl.methods.codecs.choice import Codecs
from edgefl.methods.recipe import METHODS, Method
from edgefl.methods.rules.base import LocalOptions
from edgefl.scenario.components import MODEL_SECTION
from edgefl.scenario.methods import read_methods
from edgefl.scenario.overrides import overridden, parse_overrides
from edgefl.validation import validated

SECTIONS = ("model", "training", "methods")
"""The parts of a scenario that a step's cost depends on."""


def read_step(model: str, method: str | None, changes: list[str]) -> tuple[Any, list[Method]]:
    """The model's options and the methods, from a scenario of nothing else.

    Args:
        model: a model's name.
        method: a method's name; all methods if not given.
        changes: ``PATH=VALUE`` as ``--set`` takes them, for what a step's cost depends on.

    Raises:
        UserError: something of it is unknown or does not concern a step.
    """
    scenario = {
        "model": {"name": model},
        "training": {"local": {}},
        "methods": METHODS.names() if method is None else [method],
    }
    said = overridden(scenario, parse_overrides(changes))
    for section in said:
        if section not in SECTIONS:
            raise UserError(
                f"a step's cost does not depend on this; {nearest(section, SECTIONS)}; see --shape and --classes too",
                field=section,
            )
    training = said["training"]
    if not isinstance(training, dict) or set(training) - {"local", "codec"}:
        raise UserError("of this, costs depend on training.local and training.codec alone", field="training")
    codecs = validated(Codecs, training.get("codec", {}), field="training.codec")
    local = validated(LocalOptions, training.get("local", {}), field="training.local")
    methods = [build_method(each.entry, local, codecs) for each in read_methods(said["methods"])]
    return MODEL_SECTION.read(said["model"], "model").spec, methods


def read_shape(text: str, *, field: str) -> tuple[int, ...]:
    """The sides of an image.

    >>> read_shape("3x32x32", field="--shape")
    (3, 32, 32)
    """
    sides = text.lower().replace("×", "x").split("x")
    if not all(side.isascii() and side.isdigit() and int(side) > 0 for side in sides):
        raise UserError(f"expected a shape such as 3x32x32, found '{text}'", field=field)
    return tuple(int(side) for side in sides)
