"""``edgefl methods | models | datasets``: list what a scenario can name, and the options of each."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from edgefl.cli.arguments import argument, option
from edgefl.cli.printing import print_table, quiet, say_json
from edgefl.errors import UserError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from edgefl.methods.recipe import Recipe
    from edgefl.registry import Registry

Name = Annotated[str | None, argument(..., "Show the options of this one.", metavar="NAME")]
Json = Annotated[bool, option(..., "Print JSON, including options.", "--json")]


def methods(name: Name = None, as_json: Json = False) -> None:
    """List the available methods."""
    from edgefl.methods.build import method_model
    from edgefl.methods.recipe import METHODS

    def row(_: str, recipe: Recipe) -> dict[str, Any]:
        options = {**_options(method_model(recipe), "method"), **_scheduler_option(recipe)}
        return {"summary": recipe.summary, "paper": recipe.paper, "options": options}

    _print("methods", METHODS, name, row, as_json=as_json)


def models(  # noqa: PLR0917  (Typer reads options from the signature)
    name: Name = None,
    model: str | None = argument(
        None,
        "With NAME 'show': the model to show, as in a scenario: cnn, or '{torchvision: resnet18}'.",
        metavar="MODEL",
    ),
    shape: str = option("3x32x32", "With show: shape of one input.", metavar="CxHxW"),
    classes: int = option(10, "With show: number of classes, or of outputs.", min=1),
    task: str = option("classification", "With show: what it is trained for, such as regression."),
    as_json: Json = False,
) -> None:
    """List the available models; "show MODEL" prints a model's blocks."""
    from edgefl.models.registry import MODELS

    if name == "show":
        if model is None:
            raise UserError("expected a model, such as: edgefl models show '{torchvision: resnet18}'")
        _show(model, shape, classes, task, as_json=as_json)
        return
    if model is not None:
        raise UserError(f"expected one name, or 'show' and a model, found '{name}' and '{model}'")
    _print("models", MODELS, name, _row, as_json=as_json)


def datasets(name: Name = None, as_json: Json = False) -> None:
    """List the available data sets."""
    from edgefl.data.spec import DATA_SETS

    _print("datasets", DATA_SETS, name, _row, as_json=as_json)


def _show(model: str, shape: str, classes: int, task: str, *, as_json: bool) -> None:
    from edgefl.cost.measure import block_figures
    from edgefl.models.registry import build_model
    from edgefl.scenario.components import MODEL_SECTION
    from edgefl.scenario.named_step import read_model, read_shape, read_task

    spec = MODEL_SECTION.read(read_model(model), "model").spec
    with quiet(as_json):
        built = build_model(spec, read_shape(shape, field="--shape"), classes, read_task(task))
        rows = block_figures(built)
    if as_json:
        say_json({"model": model, "blocks": [row._asdict() for row in rows], "whole": built.whole})
        return
    cells = [
        [row.name, "×".join(map(str, row.output)), *_cells(row.parameters, row.buffers, row.bytes, row.macs)]
        for row in rows
    ]
    totals = [sum(getattr(row, name) for row in rows) for name in ("parameters", "buffers", "bytes", "macs")]
    cells.append(["all", "", *_cells(*totals)])
    results = "classes" if built.task.classes else "outputs"
    notes = [f"One input of {shape}, {classes} {results}. MMACs: 10^6 multiply-accumulates of the forward pass."]
    if built.whole:
        notes.append(f"The model is one block: {built.whole}.")
    print_table(["block", "output", "parameters", "buffers", "MB", "MMACs"], cells, notes=notes, words=(0, 1))


def _cells(parameters: int, buffers: int, sent: int, macs: int) -> list[str]:
    return [f"{parameters:,}", f"{buffers:,}", f"{sent / 1e6:,.4g}", f"{macs / 1e6:,.4g}"]


def _row(_: str, part: type[BaseModel]) -> dict[str, Any]:
    summary = (inspect.getdoc(part) or "").split("\n\n")[0].replace("\n", " ")
    return {"summary": summary, "options": _options(part, "name")}


def _options(model: type[BaseModel], name: str) -> dict[str, dict[str, Any]]:
    """Each option's default and meaning, without the key ``name``, which selects the part."""
    schema = model.model_json_schema(mode="validation")
    required = schema.get("required", ())
    return {
        option: {
            "default": described.get("default"),
            "required": option in required,
            "description": described.get("description", ""),
        }
        for option, described in schema.get("properties", {}).items()
        if option != name
    }


def _scheduler_option(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """The option ``scheduler`` of methods with a partial downlink, which is defined in ``edgefl.scheduling``."""
    if recipe.scheduler is None:
        return {}
    from edgefl.scheduling.blocks.base import BLOCK_SCHEDULERS

    description = f"chooses how many blocks each client receives: {', '.join(BLOCK_SCHEDULERS.names())}"
    return {"scheduler": {"default": recipe.scheduler, "required": False, "description": description}}


def _print(
    what: str, parts: Registry[Any], name: str | None, row: Callable[[str, Any], dict[str, Any]], *, as_json: bool
) -> None:
    rows = parts.of_each(row) if name is None else {name: row(name, parts[name])}
    if as_json:
        say_json({what: [{"name": name, **each} for name, each in rows.items()]})
        return
    columns = [column for column in ("summary", "paper") if any(column in each for each in rows.values())]
    print_table(
        ["name", *columns],
        [[name, *(each.get(column, "") for column in columns)] for name, each in rows.items()],
        notes=[] if name else [f"Options of one: edgefl {what} NAME"],
        words=range(3),
    )
    for found in rows.values() if name else ():
        options = [
            [option, "(required)" if each["required"] else json.dumps(each["default"]), each["description"]]
            for option, each in found["options"].items()
        ]
        print_table(["option", "default", "meaning"], options, words=range(3))
