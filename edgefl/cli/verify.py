"""``edgefl verify``: does a run's event log obey its own rules?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def verify(run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.", show_default=False)]) -> None:
    """Check the invariants of a run's event log, and that summary.json says what the log says.

    Exit code 1 when one is broken.
    """
    from edgefl.experiment import verify as violations_in

    violations = violations_in(run)
    for violation in violations:
        typer.echo(violation)
    if violations:
        typer.echo(f"{run}: {len(violations)} {'violation' if len(violations) == 1 else 'violations'}", err=True)
        raise typer.Exit(1)
    typer.echo(f"{run}: every invariant holds")
