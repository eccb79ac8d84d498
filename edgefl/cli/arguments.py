"""Arguments and options that several commands share, each with one name and one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from edgefl.files import user_path
from edgefl.hardware import DeviceName
from edgefl.record.outputs import output_path

Run = Annotated[Path, typer.Argument(parser=user_path, metavar="RUN", help="A run directory.", show_default=False)]
Scenario = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A YAML file, or a shipped scenario's name.", show_default=False)
]


def changes(help: str) -> Any:
    """The option ``--set`` of a command that reads it in its own way; its default is ``None``."""
    return typer.Option("--set", metavar="PATH=VALUE", help=help, show_default=False)


Changes = Annotated[
    list[str] | None, changes("Change a value, such as training.rounds=20 or fleet.0.share=0.3; repeatable.")
]
Methods = Annotated[
    list[str] | None,
    typer.Option("--method", metavar="NAME", help="Only this method, by its label; repeatable.", show_default=False),
]
Seeds = Annotated[
    list[int] | None,
    typer.Option(
        "--seed", metavar="N", help="Use this seed instead of the scenario's; repeatable.", show_default=False
    ),
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
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def new_file(help: str, *names: str) -> Any:
    """An option for a file that the command writes; its default is ``None``."""
    return typer.Option(*names, parser=output_path, metavar="FILE", help=help, show_default=False)


def new_figure_file(help: str, *names: str) -> Any:
    """The same for a figure; its file extension sets the format."""
    return typer.Option(*names, parser=_figure_path, metavar="FILE", help=help, show_default=False)


def _figure_path(name: str) -> Path:
    from edgefl.report.figure_file import figure_path

    return figure_path(name)


def new_folder(help: str, *names: str) -> Any:
    """An option for a folder that the command makes; its default is ``None``."""
    return typer.Option(*names, parser=user_path, metavar="DIR", help=help, show_default=False)
