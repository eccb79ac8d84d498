"""The command-line reference, from the commands' own signatures."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from markdown_pieces import code, fence, keys, table
from typer import Context, Typer
from typer.models import ArgumentInfo, OptionInfo

INTRODUCTION = """# Command line

Every command has `--help`. Exit codes: 0 done; 2 the input is wrong (explained in one message); 1 a fault; 130 and 143
stopped by Ctrl-C or SIGTERM. `EDGEFL_TRACEBACK=1` prints the traceback of a fault.

"""


class Parameter:
    """An argument or an option of a command.

    Args:
        name: the function's parameter.
        hint: its type, perhaps ``Annotated`` with the option.
        default: its default, or the option.
    """

    def __init__(self, name: str, hint: Any, default: Any) -> None:
        self.type, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        self.info = next(note for note in (*notes, default) if isinstance(note, ArgumentInfo | OptionInfo))
        if default is self.info:
            default = self.info.default
        inner = [each for each in get_args(self.type) if each is not type(None)]
        if get_origin(self.type) in (Union, types.UnionType):
            self.type = inner[0]
        self.several = get_origin(self.type) is list
        if self.several:
            self.type = get_args(self.type)[0]
        self.required = default is inspect.Parameter.empty
        self.default = default
        self.metavar = str(self.info.metavar or name.upper())
        flags = [each for each in self.info.param_decls or () if each.startswith("-")]
        self.flags = ", ".join(flags or [f"--{name.replace('_', '-')}"])

    @property
    def is_argument(self) -> bool:
        """Whether it is given by position."""
        return isinstance(self.info, ArgumentInfo)

    @property
    def usage(self) -> str:
        """Its name in the line that shows the command's usage."""
        shown = self.metavar + ("..." if self.several and not self.metavar.endswith("...") else "")
        return shown if self.required else f"[{shown}]"

    @property
    def cell(self) -> str:
        """The text that users type."""
        if self.is_argument:
            return code(self.metavar)
        if self.type is bool:
            return code(self.flags)
        return code(f"{self.flags} {'|'.join(self.choices) or self.metavar}")

    @property
    def choices(self) -> list[str]:
        """The names that it accepts, if it accepts no others."""
        if get_origin(self.type) is Literal:
            return list(get_args(self.type))
        if isinstance(self.type, type) and issubclass(self.type, Enum):
            return [each.value for each in self.type]
        return []

    @property
    def meaning(self) -> str:
        """Its help text."""
        return self.info.help or ""

    @property
    def default_text(self) -> str:
        """The value that is used if it is not given."""
        if self.required:
            return "required"
        if self.default in (None, False, "") or not self.info.show_default:
            return ""
        return code(self.default.value if isinstance(self.default, Enum) else self.default)


def page() -> str:
    """The page."""
    from edgefl.cli.entry import app

    return INTRODUCTION + "\n".join(_section(path, callback) for path, callback in commands(app, "edgefl"))


def commands(app: Typer, path: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every command of an application and of those inside it, by its full name."""
    for command in app.registered_commands:
        assert command.callback is not None
        yield f"{path} {command.name or command.callback.__name__.replace('_', '-')}", command.callback
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from commands(group.typer_instance, f"{path} {group.name}")


def _section(path: str, callback: Callable[..., Any]) -> str:
    hints = get_type_hints(callback, include_extras=True)
    given = [
        Parameter(each.name, hints[each.name], each.default)
        for each in inspect.signature(callback).parameters.values()
        if hints[each.name] is not Context  # typer's own, not typed by users
    ]
    arguments = [each for each in given if each.is_argument]
    options = [each for each in given if not each.is_argument]
    usage = " ".join([path, *(["[OPTIONS]"] if options else []), *(each.usage for each in arguments)])
    text = f"## {path}\n\n{inspect.cleandoc(callback.__doc__ or '')}\n\n{fence(usage)}\n"
    if arguments:
        text += table(["argument", "meaning"], ([each.cell, each.meaning] for each in arguments)) + "\n"
    if options:
        rows = ([each.cell, each.meaning, each.default_text] for each in options)
        text += keys(["option", "meaning", "default"], rows) + "\n"
    return text
