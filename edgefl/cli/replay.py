"""``edgefl replay``: what would the run have taken on another network, or on other devices?"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated, Any

import typer

from edgefl.errors import UserError


def replay(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a finished run.", show_default=False)],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Change network, fleet, targets or budgets; repeatable.",
            show_default=False,
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="PATH=[V1, V2]",
            help="A run for each value; repeatable.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="Where the result goes; RUN-replayed if not given.", show_default=False
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", metavar="NAME", help="Only this method; repeatable.", show_default=False),
    ] = None,
) -> None:
    """Re-time a finished run on another network or fleet, without training, unless time decided what was trained.

    The result is the run directory that a full run there would have written, byte for byte.
    """
    from rich.markup import escape

    from edgefl.cli.console import standard_output
    from edgefl.experiment.replay import Replay
    from edgefl.report import RunResult, comparison_table

    out = out if out is not None else run.with_name(f"{run.name}-replayed")
    axes = [_axis(text) for text in grid or ()]
    if out.exists():
        raise UserError("expected a folder that does not exist yet", file=f"--out {out}")
    replayed = Replay(run, method)
    console = standard_output()
    results = []
    for number, values in enumerate(itertools.product(*axes), 1):
        chosen = [f"{path}={value}" for path, value in values]
        folder = out / str(number) if axes else out
        results.append(RunResult(replayed.on([*(changes or ()), *chosen], folder)))
        console.print(escape(f"{folder}: {', '.join([*(changes or ()), *chosen]) or 'unchanged'}"))
    console.print(comparison_table(*results, width=console.width))


def _axis(text: str) -> list[tuple[str, Any]]:
    """The values of one path: ``PATH=[V1, V2]``, each as YAML again."""
    import json

    from edgefl.scenario.overrides import parse_overrides

    change = parse_overrides([text])[0]
    if not isinstance(change.value, list) or not change.value:
        raise UserError("expected PATH=[VALUE, VALUE…]", file=f"--grid {text}")
    return [(".".join(change.path), json.dumps(value)) for value in change.value]
