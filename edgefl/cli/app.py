"""The tree of all commands. Heavy modules are imported by the commands, so that ``edgefl --help`` stays fast."""

from __future__ import annotations

from typing import Annotated

import typer

from edgefl.cli.cost import cost
from edgefl.cli.data import app as data
from edgefl.cli.diagnose import diagnose
from edgefl.cli.emulate import emulate
from edgefl.cli.listings import datasets, methods, models
from edgefl.cli.plan import plan
from edgefl.cli.printing import say
from edgefl.cli.profile import app as profile
from edgefl.cli.replay import replay
from edgefl.cli.report import report
from edgefl.cli.scenario import app as scenario
from edgefl.cli.schedule import schedule
from edgefl.cli.simulate import simulate
from edgefl.cli.sweep import sweep
from edgefl.cli.timeline import timeline
from edgefl.cli.verify import verify
from edgefl.version import __version__

app = typer.Typer(
    name="edgefl",
    help="Compare federated-learning methods in simulation: which accuracy each one reaches, and when, on given "
    "devices, networks and budgets.",
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"edgefl {__version__}")
        raise typer.Exit


@app.callback()
def edgefl(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    _traceback: Annotated[
        bool, typer.Option("--traceback", help="Print the traceback of a fault (also: EDGEFL_TRACEBACK=1).")
    ] = False,
) -> None:
    """Print the help if no command is given."""
    if context.invoked_subcommand is None:
        say(context.get_help())


app.command()(simulate)
app.command()(emulate)
app.command()(verify)
app.command()(report)
app.command()(timeline)
app.command()(replay)
app.add_typer(scenario, name="scenario")
app.add_typer(profile, name="profile")
app.command()(plan)
app.command()(schedule)
app.command()(sweep)
app.command()(cost)
app.command()(diagnose)
app.command()(methods)
app.command()(models)
app.command()(datasets)
app.add_typer(data, name="data")
