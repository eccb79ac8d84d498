"""Arguments and options that several commands share, each with one name and one help text."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from edgefl.errors import UserError
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


def check_options(
    context: typer.Context, modes: Mapping[str, Collection[str]], needs: Mapping[str, Collection[str]] | None = None
) -> None:
    """Refuse options that cannot stand together on the command line.

    An option that is a key of ``modes`` changes what the command does, and accepts no other parameters than those of
    its value. A key of ``needs`` has a meaning only with one of its value. All are names of the command's parameters.
    """
    shown = {
        str(each.name): next((option for option in each.opts if option.startswith("--")), str(each.name).upper())
        for each in context.command.params
    }
    sources = {name: context.get_parameter_source(name) for name in shown}
    given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    for mode, accepted in modes.items():
        for name in given if context.params.get(mode) else ():
            if name != mode and name not in accepted:
                raise UserError(f"cannot be combined with {shown[mode]}", file=shown[name])
    for name, others in (needs or {}).items():
        if name in given and not any(context.params.get(each) for each in others):
            raise UserError(f"expected it with {' or '.join(shown[each] for each in others)}", file=shown[name])
