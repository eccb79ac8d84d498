"""The tree of all commands. Heavy modules are imported by the commands, so that ``edgefl --help`` stays fast."""

from __future__ import annotations

import inspect
from typing import Any

import typer
from typer.core import TyperGroup

from edgefl.cli.arguments import option
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


class _Grouped(TyperGroup):
    """Lists the commands in groups, each with the first sentence of its help."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the groups."""
        found = [(command, self.get_command(ctx, command)) for command in self.list_commands(ctx)]
        for group in GROUPS:
            with formatter.section(group):
                formatter.write_dl(
                    [
                        (name, inspect.cleandoc(each.help or "").partition(". ")[0].split("\n\n")[0].rstrip("."))
                        for name, each in found
                        if each is not None and getattr(each, "rich_help_panel", None) == group
                    ]
                )


app = typer.Typer(
    name="edgefl",
    cls=_Grouped,
    help="Compare federated-learning methods in simulation: which accuracy each one reaches, and when, on given "
    "devices, networks and budgets.",
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"edgefl {__version__}")
        raise typer.Exit


@app.callback()
def edgefl(
    context: typer.Context,
    _version: bool = option(False, "Print the version and exit.", "--version", callback=_print_version, is_eager=True),
    _traceback: bool = option(False, "Print the traceback of a fault (also: EDGEFL_TRACEBACK=1).", "--traceback"),
) -> None:
    """Print the help if no command is given."""
    if context.invoked_subcommand is None:
        say(context.get_help())


GROUPS: dict[str, dict[str, tuple[Any, tuple[str, ...]]]] = {
    "Run": {
        "simulate": (simulate, ("simulate 5g_100clients", "simulate my.yaml --set training.rounds=20 --seed 0")),
        "sweep": (sweep, ("sweep 5g_100clients --grid training.local.lr=0.02,0.05",)),
        "replay": (replay, ("replay runs/short --set network.topology.latency=80ms",)),
        "emulate": (emulate, ("emulate 5g_10clients --rounds 2 --seed 0", "emulate --check")),
    },
    "Look at a run": {
        "report": (report, ("report runs/short --html page.html", "report runs/4g runs/5g")),
        "timeline": (timeline, ("timeline runs/short --method fedbr -o trace.json",)),
        "verify": (verify, ("verify runs/short",)),
        "diagnose": (diagnose, ("diagnose runs/short --method fedavg",)),
    },
    "Before training": {
        "plan": (plan, ("plan 5g_100clients", "plan runs/short --for 'accuracy=0.8 within 20 s'")),
        "schedule": (schedule, ("schedule 5g_100clients --rounds 200",)),
        "cost": (cost, ("cost --model cnn --all", "cost --model '{timm: resnet18}' --method fedavg")),
        "data": (data, ("data show 5g_100clients",)),
        "scenario": (scenario, ("scenario list", "scenario validate my.yaml --resolved")),
    },
    "Parts": {
        "methods": (methods, ("methods", "methods fedbr")),
        "models": (models, ("models", "models show '{torchvision: resnet18}'")),
        "datasets": (datasets, ("datasets", "datasets digits")),
        "profile": (profile, ("profile list", "profile measure -o here.yaml")),
    },
}
"""The commands with their examples."""

for _group, _commands in GROUPS.items():
    for _name, (_command, _examples) in _commands.items():
        _shown = "\n".join(["\b\nExamples:", *(f"  edgefl {each}" for each in _examples)])
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_name, epilog=_shown, rich_help_panel=_group)
        else:
            app.command(_name, epilog=_shown, rich_help_panel=_group)(_command)
