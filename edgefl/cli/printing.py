"""How commands print plain text; tables are printed on the consoles of :mod:`edgefl.cli.console`."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from typing import Any

import typer

from edgefl.wording import escape


def say(text: object, *, err: bool = False, nl: bool = True) -> None:
    r"""Print text, with control characters shown as escapes (``\x1b``).

    Args:
        text: what to print; names and messages in it may come from received files.
        err: print it to standard error.
        nl: end the line.
    """
    typer.echo(escape(str(text), keep="\n\t"), err=err, nl=nl)


def say_json(data: Any) -> None:
    """Print plain data as JSON."""
    say(json.dumps(data, indent=2))


def quiet(as_json: bool) -> AbstractContextManager[object]:
    """Redirect printing by models and parts of methods to standard error if standard output is JSON."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()
