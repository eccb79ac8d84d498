"""The JSON schema of scenario files, for editors and for other programs."""

from __future__ import annotations

from typing import Any

from edgefl.data.spec import data_sets_schema
from edgefl.scenario.components import BANDWIDTH_SECTION, MODEL_SECTION, SELECTION_SECTION, TASK_SECTION
from edgefl.scenario.methods import methods_schema
from edgefl.scenario.scenario import Scenario


def json_schema() -> dict[str, Any]:
    """The JSON schema of a scenario file, with the options of every registered part.

    >>> sorted(json_schema()["required"])
    ['data', 'fleet', 'methods', 'model', 'name', 'network', 'training']
    """
    schema = Scenario.model_json_schema(mode="validation")
    definitions = schema["$defs"]
    described = {
        "task": TASK_SECTION.json_schema(),
        "data": data_sets_schema(),
        "model": MODEL_SECTION.json_schema(),
        "selection": SELECTION_SECTION.json_schema(),
        "bandwidth": BANDWIDTH_SECTION.json_schema(),
    }
    sections: dict[str, tuple[dict[str, Any], str]] = {
        "task": (schema, "what the model is trained for: a kind and its options"),
        "data": (schema, "the data set, and how it is distributed over the clients"),
        "model": (schema, "the model to train: its name and options"),
        "selection": (definitions["TrainingSpec"], "how the cohort is selected: a kind and its options"),
        "bandwidth": (
            definitions["TrainingSpec"],
            "how the server divides its bandwidth among transfers: a kind and its options",
        ),
    }
    for name, (parent, description) in sections.items():
        parent["properties"][name] = {**_lifted(described[name], definitions), "description": description}
    for name in ("targets", "budgets"):  # null is equivalent to omitting them
        allowed = schema["properties"][name]
        meaning = {key: allowed.pop(key) for key in ("description", "default", "title") if key in allowed}
        schema["properties"][name] = {"anyOf": [allowed, {"type": "null"}], **meaning}
    schema["properties"]["methods"] = _lifted(methods_schema(), definitions)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _lifted(schema: Any, definitions: dict[str, Any]) -> Any:
    """The schema with its own definitions moved to ``definitions``, to which its references refer."""
    if isinstance(schema, dict):
        definitions.update({name: _lifted(inner, definitions) for name, inner in schema.get("$defs", {}).items()})
        return {key: _lifted(inner, definitions) for key, inner in schema.items() if key != "$defs"}
    if isinstance(schema, list):
        return [_lifted(inner, definitions) for inner in schema]
    return schema
