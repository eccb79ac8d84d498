"""``edgefl scenario``: checking scenario files, and the schema that editors check them with."""

from __future__ import annotations

import json
from typing import Annotated

import typer

app = typer.Typer(help="Check a scenario file, or print the schema of all of them.", no_args_is_help=False)


@app.command()
def validate(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A YAML file, or a shipped scenario's name.", show_default=False)
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a value first, as in simulate.", show_default=False),
    ] = None,
    resolved: Annotated[
        bool, typer.Option("--resolved", help="Print it with every default and device profile filled in.")
    ] = False,
) -> None:
    """Check a scenario without running it."""
    from edgefl.scenario import dump_yaml, load_scenario, rehearse, resolve

    checked = load_scenario(scenario, changes or ())
    rehearse(checked, file=scenario, overrides=changes or ())
    if resolved:
        typer.echo(dump_yaml(resolve(checked)), nl=False)
    else:
        runs = f"{len(checked.methods)} methods x {len(checked.seeds)} seeds, {checked.training.rounds} rounds"
        typer.echo(f"{scenario}: valid ({checked.name}: {checked.data.clients} clients, {runs})")


@app.command()
def schema() -> None:
    """Print the JSON schema of scenario files."""
    from edgefl.scenario import json_schema

    typer.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
