"""Arguments and options that several commands share, each with one name and one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from edgefl.files import user_path
from edgefl.hardware import DeviceName
from edgefl.record.outputs import output_path


def option(*names: str, **settings: Any) -> Any:
    """An option whose default is not shown."""
    return typer.Option(*names, show_default=False, **settings)


def argument(**settings: Any) -> Any:
    """An argument whose default is not shown."""
    return typer.Argument(show_default=False, **settings)


Run = Annotated[Path, argument(parser=user_path, metavar="RUN", help="A run directory.")]
Scenario = Annotated[str, argument(metavar="SCENARIO", help="A YAML file, or a shipped scenario's name.")]


def changes(help: str) -> Any:
    """The option ``--set`` of a command that reads it in its own way; its default is ``None``."""
    return option("--set", metavar="PATH=VALUE", help=help)


Changes = Annotated[
    list[str] | None, changes("Change a value, such as training.rounds=20 or fleet.0.share=0.3; repeatable.")
]
Methods = Annotated[
    list[str] | None, option("--method", metavar="NAME", help="Only this method, by its label; repeatable.")
]
Seeds = Annotated[
    list[int] | None, option("--seed", metavar="N", help="Use this seed instead of the scenario's; repeatable.")
]
Device = Annotated[DeviceName, typer.Option("--device", help="Where training runs.")]
NoTrain = Annotated[
    bool, typer.Option("--no-train", help="Simulate devices and network only: no accuracy, milliseconds a round.")
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Execute the run's Python files (python: FILE.py:NAME) even if they are not the original ones."
    ),
]
Details = Annotated[
    bool, typer.Option("--details", help="Print every figure with its interval, all differences, and the rules.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def new_file(help: str, *names: str) -> Any:
    """An option for a file that the command writes; its default is ``None``."""
    return option(*names, parser=output_path, metavar="FILE", help=help)


def new_figure_file(help: str, *names: str) -> Any:
    """The same for a figure; its file extension sets the format."""
    return option(*names, parser=_figure_path, metavar="FILE", help=help)


def _figure_path(name: str) -> Path:
    from edgefl.report.figure_file import figure_path

    return figure_path(name)


def new_folder(help: str, *names: str) -> Any:
    """An option for a folder that the command makes; its default is ``None``."""
    return option(*names, parser=user_path, metavar="DIR", help=help)
