"""A single training step by name, as the command line and tables of measured times name it."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from edgefl.errors import UserError, locating, nearest
from edgefl.input_file import code_files
from edgefl.methods.build import build_method
from edgefl.methods.codecs.choice import Codecs
from edgefl.methods.fits import check
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.recipe import METHODS, Method
from edgefl.privacy.spec import Privacy
from edgefl.privacy.training import PrivateTraining
from edgefl.registry import chosen_part
from edgefl.scenario.components import MODEL_SECTION
from edgefl.scenario.methods import read_methods
from edgefl.scenario.overrides import overridden, parse_overrides
from edgefl.tasks.base import TASKS, Task
from edgefl.user_code import allow
from edgefl.validation import validated
from edgefl.yaml_file import parse_yaml

SECTIONS = ("model", "training", "methods", "privacy")
"""What a step's cost depends on."""

MOST_NUMBERS = 2**26
"""Numbers in a sample of ``--shape``; with more, memory would not suffice to count its step."""


def read_model(text: str) -> Any:
    """A scenario's section ``model``, from a name or a mapping in YAML.

    >>> read_model("cnn"), read_model("{timm: resnet18}")
    ({'name': 'cnn'}, {'timm': 'resnet18'})
    """
    if not text.lstrip().startswith("{"):
        return {"name": text}
    options = parse_yaml(text, file="--model")
    for code in code_files(MODEL_SECTION.read(options, "model")).values():
        allow(code)
    return options


def read_step(model: str, method: str | None, changes: list[str], batch: int = 32) -> tuple[Any, list[Method]]:
    """The model's options and the methods (all if none is given), from a scenario of nothing else but the batch.

    ``changes`` are texts ``PATH=VALUE``, as for ``--set``, for what a step's cost depends on.
    """
    scenario = {
        "model": read_model(model),
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
        raise UserError("costs depend only on training.local and training.codec", field="training")
    codecs = validated(Codecs, training.get("codec", {}), field="training.codec")
    local = validated(LocalOptions, {**training.get("local", {}), "batch": batch}, field="training.local")
    methods = [build_method(each.entry, local, codecs) for each in read_methods(said["methods"])]
    if "privacy" in said:
        methods = [_clipping(each, said["privacy"]) for each in methods]
    return MODEL_SECTION.read(said["model"], "model").spec, methods


def _clipping(method: Method, privacy: Any) -> Method:
    """The method whose clients clip the gradients of examples, as far as a step's cost depends on it."""
    given = privacy.get("dp") if isinstance(privacy, Mapping) and set(privacy) == {"dp"} else None
    if not isinstance(given, Mapping):
        raise UserError("a step's cost depends only on privacy.dp", field="privacy")
    usual = {"kind": "example", "clip": 1.0, "delta": 1e-5, **({} if "epsilon" in given else {"noise": 1.0})}
    spec = validated(Privacy, {"dp": {**usual, **given}}, field="privacy")
    check(spec.parts(), method.takes())
    return replace(method, private=PrivateTraining(None, spec.dp, None, 1, 1, method.local.step_samples))


def read_task(text: str) -> Task:
    """A task from its kind, or from a mapping as in a scenario; UserError for an unknown task or option.

    >>> read_task("regression").kind
    'regression'
    """
    with locating(file="--task"):
        return chosen_part(TASKS, parse_yaml(text))


def read_shape(text: str, *, field: str) -> tuple[int, ...]:
    """The sides of an image.

    >>> read_shape("3x32x32", field="--shape")
    (3, 32, 32)
    """
    sides = text.lower().replace("×", "x").split("x")
    if not all(side.isascii() and side.isdigit() and len(side) < 10 and int(side) > 0 for side in sides):
        raise UserError(f"expected a shape such as 3x32x32, found '{text}'", field=field)
    shape = tuple(int(side) for side in sides)
    if math.prod(shape) > MOST_NUMBERS:
        raise UserError(f"expected at most {MOST_NUMBERS:,} numbers in a sample, found '{text}'", field=field)
    return shape
