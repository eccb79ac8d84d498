"""The commands in one tree. Nothing heavy is imported here, so that ``edgefl --help`` answers at once."""

from __future__ import annotations

from typing import Annotated

import typer

from edgefl.cli.bench import app as bench
from edgefl.cli.cost import cost
from edgefl.cli.diagnose import diagnose
from edgefl.cli.listings import datasets, methods, models
from edgefl.cli.plan import plan
from edgefl.cli.profile import app as profile
from edgefl.cli.replay import replay
from edgefl.cli.report import report
from edgefl.cli.scenario import app as scenario
from edgefl.cli.simulate import simulate
from edgefl.cli.sweep import sweep
from edgefl.cli.timeline import timeline
from edgefl.cli.verify import verify
from edgefl.version import __version__

app = typer.Typer(
    name="edgefl",
    help="On these devices, over these networks, within this budget: which federated-learning method reaches which "
    "accuracy, and when?",
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"edgefl {__version__}")
        raise typer.Exit


@app.callback()
def edgefl(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    _traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where a fault happened (also: EDGEFL_TRACEBACK=1).")
    ] = False,
) -> None:
    """The root of all commands; without one it prints the help."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command()(simulate)
app.command()(verify)
app.command()(report)
app.command()(timeline)
app.command()(replay)
app.add_typer(scenario, name="scenario")
app.add_typer(profile, name="profile")
app.command()(plan)
app.command()(sweep)
app.command()(cost)
app.command()(diagnose)
app.add_typer(bench, name="bench")
app.command()(methods)
app.command()(models)
app.command()(datasets)
