"""``edgefl`` as a program: runs the command and turns any error into one message and an exit code.

Exit codes: 0 done; 2 the user's input is wrong; 1 a fault; 128 + the signal's number when stopped by Ctrl-C or SIGTERM.
"""

import inspect
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from edgefl.cli.arguments import option
from edgefl.cli.cost import cost
from edgefl.cli.data import app as data
from edgefl.cli.diagnose import diagnose
from edgefl.cli.emulate import emulate
from edgefl.cli.listings import datasets, methods, models
from edgefl.cli.new import new
from edgefl.cli.plan import plan
from edgefl.cli.printing import Stopped, flush, say
from edgefl.cli.profile import app as profile
from edgefl.cli.replay import replay
from edgefl.cli.report import report
from edgefl.cli.scenario import app as scenario
from edgefl.cli.schedule import schedule
from edgefl.cli.simulate import simulate
from edgefl.cli.sweep import sweep
from edgefl.cli.timeline import timeline
from edgefl.cli.verify import verify
from edgefl.errors import Note, UserError
from edgefl.version import __version__

from edgefl.cli import profile_measure, profile_calibrate  # isort: skip  # noqa: F401  (in the order of help)


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
        "new": (new, ("new mine", "new mine --csv sensors.csv --target state --client site")),
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


DONE, FAULT, WRONG_INPUT = 0, 1, 2

_warn = partial(say, err=True)

INSISTING_SECONDS = 1.0
"""A second Ctrl-C or SIGTERM after this time ends the process at once; an earlier one counts as the same signal."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``edgefl`` with these arguments (the process's own if not given) and return the exit code."""
    alone = arguments is None
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):  # characters that their encoding lacks are written as escapes
        with suppress(AttributeError, ValueError):  # not a text stream of Python's
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    with _stopping_politely(to_the_end=alone) as received:
        advice = None
        try:
            code = _invoke(arguments)
        except (KeyboardInterrupt, typer.Abort):
            code = 128 + signal.SIGINT
        except Stopped as stopped:
            code, advice = 128 + signal.SIGINT, str(stopped)
        if received or code == 128 + signal.SIGINT:
            stop = received[0] if received else signal.SIGINT
            _warn(f"stopped by {signal.Signals(stop).name}; finished work is kept")
            if advice is not None:
                _warn(advice)
            code = 128 + stop
    return code


def _invoke(arguments: list[str]) -> int:
    try:
        with _notes_in_a_line():
            result = app(args=arguments, prog_name="edgefl", standalone_mode=False)
        flush()
    except UserError as error:
        _warn(f"error: {error}")
        return WRONG_INPUT
    except (KeyboardInterrupt, typer.Abort, typer.Exit, Stopped):
        raise
    except BaseException as error:  # noqa: BLE001  (the last resort of a program; a plug-in may call sys.exit)
        if _is_usage_error(error):
            return WRONG_INPUT
        return _fault(error, arguments)
    # The return value of a command is ignored; a typer.Exit arrives here as its exit code.
    return result if isinstance(result, int) else DONE


@contextmanager
def _notes_in_a_line() -> Iterator[None]:
    """Print each note once, as one line without its place in the code."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", Note)
        shown, said = warnings.showwarning, set[str]()

        def show(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
            if issubclass(category, Note):
                if str(message) not in said:
                    _warn(f"warning: {message}")
                said.add(str(message))
            else:
                shown(message, category, *place, **options)

        warnings.showwarning = show
        yield


def _is_usage_error(error: BaseException) -> bool:
    """Print the message of a misused option. Its class is in click or in typer, depending on typer's version."""
    form = getattr(error, "format_message", None)
    if form is None:
        return False
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "edgefl"
    what = form() or f"'{command}' needs a command"
    _warn(f"error: {what} (see '{command} --help')")
    return True


def _fault(error: BaseException, arguments: list[str]) -> int:
    if "--traceback" in arguments or os.environ.get("EDGEFL_TRACEBACK", "0") not in ("", "0"):
        _warn("".join(traceback.format_exception(error)).rstrip())
    else:
        texts = [" ".join(text.split()) for text in (str(error), *getattr(error, "__notes__", ()))]
        reason = "; ".join(filter(None, texts)) or "no message"
        _warn(f"fault: {type(error).__name__}: {reason} (traceback: EDGEFL_TRACEBACK=1 or 'edgefl --traceback …')")
    return FAULT


@contextmanager
def _stopping_politely(*, to_the_end: bool) -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM raise KeyboardInterrupt in the command, so that files are closed; yields the signals received.

    A second, later signal ends the process without waiting for that. ``to_the_end``: the process ends after the
    command, so a second signal must not disturb the interpreter's shutdown.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set signal handlers
        yield received
        return

    first = 0.0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
            # Python ignores errors in the callbacks of its import locks: the signal comes again in a moment.
            threading.Timer(0.02, os.kill, (os.getpid(), number)).start()
            return
        if received:
            # One Ctrl-C may arrive twice. A later one ends the process at once: a killed run can always be resumed.
            if time.monotonic() - first > INSISTING_SECONDS:
                os._exit(128 + number)
            return
        first = time.monotonic()
        received.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if received and to_the_end else handler)
