"""``edgefl methods | models | datasets``: list what a scenario can name, and the options of each."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefl.cli.printing import say_json

if TYPE_CHECKING:
    from pydantic import BaseModel

    from edgefl.methods.recipe import Recipe

Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show the options of this one.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, including options.")]


def methods(name: Name = None, as_json: Json = False) -> None:
    """List the available methods."""
    from edgefl.methods.build import method_model
    from edgefl.methods.recipe import METHODS

    def row(key: str, recipe: Recipe) -> dict[str, Any]:
        options = {**_options(method_model(key)), **_scheduler_option(recipe)}
        return {"summary": recipe.summary, "paper": recipe.paper, "options": options}

    rows = METHODS.of_each(row) if name is None else {name: row(name, METHODS[name])}
    _print("methods", rows, detailed=name is not None, as_json=as_json)


def models(name: Name = None, as_json: Json = False) -> None:
    """List the available models."""
    from edgefl.models.registry import MODELS

    rows = MODELS.of_each(_row) if name is None else {name: _row(name, MODELS[name])}
    _print("models", rows, detailed=name is not None, as_json=as_json)


def datasets(name: Name = None, as_json: Json = False) -> None:
    """List the available data sets."""
    from edgefl.data.spec import DATA_SETS

    rows = DATA_SETS.of_each(_row) if name is None else {name: _row(name, DATA_SETS[name])}
    _print("datasets", rows, detailed=name is not None, as_json=as_json)


def _row(_: str, part: type[BaseModel]) -> dict[str, Any]:
    return {"summary": _summary(part), "options": _options(part)}


def _summary(part: type[Any]) -> str:
    """The first sentence of a class's docstring."""
    return (inspect.getdoc(part) or "").split("\n\n")[0].replace("\n", " ")


def _options(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """Each option's default and meaning."""
    schema = model.model_json_schema(mode="validation")
    required = schema.get("required", ())
    return {
        option: {
            "default": described.get("default"),
            "required": option in required,
            "description": described.get("description", ""),
        }
        for option, described in schema.get("properties", {}).items()
    }


def _scheduler_option(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """The option ``scheduler`` of methods with a partial downlink, which is defined in ``edgefl.scheduling``."""
    if recipe.scheduler is None:
        return {}
    from edgefl.scheduling.blocks.base import BLOCK_SCHEDULERS

    choices = ", ".join(BLOCK_SCHEDULERS.names())
    description = f"chooses how many blocks each client receives: {choices}"
    return {"scheduler": {"default": recipe.scheduler, "required": False, "description": description}}


def _print(what: str, rows: Mapping[str, Mapping[str, Any]], *, detailed: bool, as_json: bool) -> None:
    if as_json:
        say_json({what: [{"name": name, **row} for name, row in rows.items()]})
        return
    from edgefl.cli.console import print_table

    columns = [column for column in ("summary", "paper") if any(column in row for row in rows.values())]
    print_table(
        ["name", *columns],
        [[name, *(row.get(column, "") for column in columns)] for name, row in rows.items()],
        notes=[] if detailed else [f"Options of one: edgefl {what} NAME"],
        words=range(3),
    )
    for row in rows.values() if detailed else ():
        options = [
            [option, "(required)" if each["required"] else json.dumps(each["default"]), each["description"]]
            for option, each in row["options"].items()
        ]
        print_table(["option", "default", "meaning"], options, words=range(3))
