"""Arguments and options that several commands share, each with one name and one help text."""

from pathlib import Path
from typing import Annotated, Any

import typer

from edgefl.files import user_path
from edgefl.hardware import DeviceName
from edgefl.record.paths import output_path


def option(default: Any, help: str, *names: str, unset: str = "", **settings: Any) -> Any:
    """An option; the help shows its default, or in words what ``unset`` means. Within ``Annotated`` it has none (…)."""
    return typer.Option(default, *names, help=help, show_default=unset or default is not None, **settings)


def argument(default: Any, help: str, **settings: Any) -> Any:
    """An argument whose default is not shown."""
    return typer.Argument(default, help=help, show_default=False, **settings)


Run = Annotated[Path, argument(..., "A run directory.", parser=user_path, metavar="RUN")]
Scenario = Annotated[str, argument(..., "A YAML file, or a shipped scenario's name.", metavar="SCENARIO")]


def changes(help: str) -> Any:
    """The option ``--set`` of a command that reads it in its own way; its default is ``None``."""
    return option(None, help, "--set", metavar="PATH=VALUE")


Changes = Annotated[
    list[str] | None,
    option(
        ...,
        "Change a value, such as training.rounds=20 or fleet.0.share=0.3; repeatable.",
        "--set",
        metavar="PATH=VALUE",
    ),
]
Methods = Annotated[
    list[str] | None, option(..., "Only this method, by its label; repeatable.", "--method", metavar="NAME")
]
Seeds = Annotated[
    list[int] | None, option(..., "Use this seed instead of the scenario's; repeatable.", "--seed", metavar="N")
]
Device = Annotated[DeviceName, option(..., "Where training runs.", "--device")]
NoTrain = Annotated[
    bool, option(..., "Simulate devices and network only: no accuracy, milliseconds a round.", "--no-train")
]
Trust = Annotated[
    bool,
    option(
        ..., "Execute the run's Python files (python: FILE.py:NAME) even if they are not the original ones.", "--trust"
    ),
]
Details = Annotated[
    bool, option(..., "Print every figure with its interval, all differences, and the rules.", "--details")
]
Json = Annotated[bool, option(..., "Print JSON.", "--json")]


def new_file(help: str, *names: str) -> Any:
    """An option for a file that the command writes; its default is ``None``."""
    return option(None, help, *names, parser=output_path, metavar="FILE")


def new_figure_file(help: str, *names: str) -> Any:
    """The same for a figure; its file extension sets the format."""
    return option(None, help, *names, parser=_figure_path, metavar="FILE")


def _figure_path(name: str) -> Path:
    from edgefl.report.figure_file import figure_path

    return figure_path(name)


def new_folder(help: str, *names: str) -> Any:
    """An option for a folder that the command makes; its default is ``None``."""
    return option(None, help, *names, parser=user_path, metavar="DIR")
