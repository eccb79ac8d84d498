"""No boolean passes for a number, in any field of anything that a scenario or a profile may say."""

from __future__ import annotations

import inspect
from typing import Any, get_args

import pytest
from pydantic import JsonValue, ValidationError

from edgefl.data.spec import DATA_SETS
from edgefl.errors import UserError
from edgefl.methods.build import method_model
from edgefl.methods.codecs.base import CODECS
from edgefl.methods.parts.server import SERVER_UPDATES
from edgefl.methods.recipe import METHODS
from edgefl.models.registry import MODELS
from edgefl.options import Options
from edgefl.scenario import load_scenario
from edgefl.scheduling.bandwidth.base import ALLOCATIONS
from edgefl.scheduling.blocks.base import BLOCK_SCHEDULERS
from edgefl.scheduling.selection.base import SELECTORS


def kinds() -> set[type[Options]]:
    """Every class of options there is, whoever names it."""
    for registry in (CODECS, DATA_SETS, METHODS, MODELS, SERVER_UPDATES, BLOCK_SCHEDULERS, SELECTORS, ALLOCATIONS):
        assert [registry[name] for name in registry.names()]
    for name in METHODS.names():
        method_model(name)
    found, waiting = set(), [Options]
    while waiting:
        kind = waiting.pop()
        found.add(kind)
        waiting += [each for each in kind.__subclasses__() if each not in found]
    return found


def admits(annotation: Any, kind: type) -> bool:
    anything = annotation in (Any, JsonValue)
    return anything or annotation is kind or any(admits(each, kind) for each in get_args(annotation))


FORMS = [lambda x: x, lambda x: [x], lambda x: [x, x], lambda x: {"1": x}, lambda x: {"fedavg": [x, x]}]
"""How a number may stand in a field: alone, in a list, in a mapping."""
NUMBERS = [0, 1, 2, 10, 0.5]


def refused(kind: type[Options], name: str, value: Any) -> bool:
    """Whether the field's own value is complained about."""
    try:
        kind.model_validate({name: value})
    except ValidationError as error:
        return any(details["loc"][:1] == (name,) for details in error.errors())
    except UserError:
        return True
    return False


def test_no_field_that_takes_a_number_takes_true():
    tried = 0
    concrete = [kind for kind in kinds() if not inspect.isabstract(kind) and kind.model_config["extra"] == "forbid"]
    for kind in sorted(concrete, key=lambda each: each.__qualname__):
        for field, info in kind.model_fields.items():
            if admits(info.annotation, bool):
                continue
            name = info.alias or field
            for form in FORMS:
                if all(refused(kind, name, form(number)) for number in NUMBERS):
                    continue
                tried += 1
                assert refused(kind, name, form(True)), (kind, name, form(True))
                assert refused(kind, name, form(False)), (kind, name, form(False))
    assert tried > 150


def test_a_boolean_is_named_with_what_was_expected():
    with pytest.raises(UserError, match=r"training.cohort: expected a whole number, found true$"):
        load_scenario("5g_100clients", {"training.cohort": True})
    with pytest.raises(UserError, match=r"training.local.lr: expected a number, found true$"):
        load_scenario("5g_100clients", {"training.local.lr": True})
