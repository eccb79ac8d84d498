"""``edgefl simulate``: run a scenario."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from edgefl.cli import arguments
from edgefl.cli.arguments import argument, check_options, new_file, option
from edgefl.cli.printing import Stopped, quiet, say, show
from edgefl.errors import UserError, in_words, locating, nearest
from edgefl.files import user_path
from edgefl.hardware import EngineKind

if TYPE_CHECKING:
    from edgefl.flower.scenario import AppScenario
    from edgefl.record.events import Listener
    from edgefl.record.metric import Metric
    from edgefl.report.progress import Progress
    from edgefl.scenario import Scenario


def simulate(  # noqa: PLR0917  (Typer reads options from the signature)
    context: typer.Context,
    scenario: str | None = argument(
        None, "A YAML file, or a shipped scenario's name; with --add-seeds, a run directory.", metavar="SCENARIO"
    ),
    out: Path | None = arguments.new_folder("The run directory; runs/NAME if not given."),
    method: arguments.Methods = None,
    changes: arguments.Changes = None,
    seed: arguments.Seeds = None,
    device: arguments.Device = "auto",
    engine: EngineKind | None = option(None, "How training runs.", unset="the scenario's"),
    no_train: arguments.NoTrain = False,
    resume: Path | None = option(
        None,
        "Resume an interrupted run; with --rounds or --set, go on with a finished one.",
        parser=user_path,
        metavar="DIR",
    ),
    rounds: int | None = option(
        None,
        "With --resume: the rounds of the run in total (of a new run: --set training.rounds=N).",
        min=1,
        metavar="N",
    ),
    add_seeds: int | None = option(
        None, "Extend a finished run by N seeds; the present ones are not executed again.", min=1, metavar="N"
    ),
    trust: arguments.Trust = False,
    details: arguments.Details = False,
    html: Path | None = new_file(
        "Keep a page that reloads itself while the run is in progress; at the end it is that of report --html."
    ),
    as_json: bool = option(False, "Print only summary.json to standard output.", "--json"),
) -> None:
    """Run a scenario and compare its methods: which accuracy each one reaches, and when."""
    again = ("as_json", "trust", "details", "html")
    wanted = [*(changes or ()), *([] if rounds is None else [f"training.rounds={rounds}"])]
    resumed = ("rounds", "changes", "device") if wanted else ()
    modes = {"resume": (*again, *resumed), "add_seeds": (*again, "scenario", "device")}
    check_options(context, modes, {"rounds": ["resume"], "trust": ["resume", "add_seeds"]})
    shown = {"as_json": as_json, "detailed": details, "html": html}
    if resume is not None and wanted:
        from edgefl.experiment import go_on

        _again(resume, shown, go_on, wanted, device=device, trust=trust)
        return
    if resume is not None:
        _again(resume, shown, _resuming(resume), trust=trust)
        return
    if scenario is None:
        raise UserError("expected a scenario: a YAML file, or a shipped scenario's name", file="SCENARIO")
    if add_seeds is not None:
        from edgefl.experiment import go_on

        if not user_path(scenario).is_dir():
            message = "--add-seeds needs the folder of a finished run, from edgefl simulate --out RUN"
            raise UserError(message, file=scenario)
        _again(user_path(scenario), shown, go_on, new_seeds=add_seeds, device=device, trust=trust)
        return
    from edgefl.experiment import look_free, run
    from edgefl.flower.scenario import AppScenario, load_any_scenario
    from edgefl.record import RunPaths
    from edgefl.record.metric import ACCURACY
    from edgefl.scenario import rehearse

    if RunPaths(user_path(scenario)).summary.is_file():
        raise UserError(
            f"is a finished run; to go on with it: edgefl simulate --resume {shlex.quote(scenario)} --rounds N (or "
            "--set stop=rounds, or a larger budget); for more seeds: --add-seeds N",
            file=scenario,
        )
    chosen = load_any_scenario(scenario, changes or ())
    chosen = chosen.with_seeds(seed) if seed else chosen
    labels = chosen_labels(chosen, method)
    folder = out if out is not None else Path("runs") / chosen.name
    look_free(folder, hint="choose another folder with --out")  # again, once the run has locked it
    if isinstance(chosen, AppScenario):
        for name, given in {"--device": device != "auto", "--engine": engine, "--no-train": no_train}.items():
            if given:
                raise UserError("a Flower app trains in its own code; remove this option", file=name)
        _begin_flower()
        from edgefl.flower.run import run as run_apps

        with _shown(folder, scenario, lambda: ACCURACY, shown) as listeners:
            run_apps(chosen, out=folder, methods=labels, listeners=listeners)
        return
    rehearse(chosen, file=scenario, overrides=changes or (), trains=not no_train)
    with _shown(folder, scenario, lambda: chosen.task.measured, shown) as listeners:
        run(chosen, out=folder, methods=labels, device=device, engine=engine, train=not no_train, listeners=listeners)


def _begin_flower() -> None:
    """Check that Flower is installed, and leave only warnings of its log, or what FLWR_LOG_LEVEL says."""
    from edgefl.flower.app import require_flwr

    require_flwr()
    logging.getLogger("flwr").setLevel(os.environ.get("FLWR_LOG_LEVEL", "WARNING"))


def _resuming(folder: Path) -> Callable[..., Any]:
    from edgefl.experiment import resume
    from edgefl.flower.scenario import app_scenario_of

    if app_scenario_of(folder) is None:
        return resume
    _begin_flower()
    from edgefl.flower.run import resume as resume_apps

    return resume_apps


def _again(folder: Path, shown: Mapping[str, Any], again: Callable[..., Any], *given: Any, **options: Any) -> None:
    with _shown(folder, str(folder), lambda: metric_of(folder), shown) as listeners:
        again(folder, *given, listeners=listeners, **options)


def metric_of(run: Path) -> Metric:
    """The metric of the runs of a directory, by its scenario."""
    from edgefl.flower.scenario import app_scenario_of
    from edgefl.record import RunPaths
    from edgefl.record.metric import ACCURACY
    from edgefl.scenario import load_scenario

    if app_scenario_of(run) is not None:
        return ACCURACY
    return load_scenario(RunPaths(run).scenario, run_code=False).task.measured


@contextmanager
def _shown(
    folder: Path, named: str, metric: Callable[[], Metric], shown: Mapping[str, Any]
) -> Iterator[list[Listener]]:
    """Show the progress of a run, and at its end, also after a fault, its result."""
    from edgefl.experiment import RunsFailed
    from edgefl.report.page.live import LivePage

    html, ways = shown["html"], {name: way for name, way in shown.items() if name != "html"}
    try:
        with following(folder, named, metric, as_json=shown["as_json"]) as display:
            live = html and LivePage(html, folder, metric, display.left, lambda words: say(words, err=True))
            try:
                yield [display, live] if live else [display]
            finally:
                if live:
                    live.ended()
        print_result(folder, **ways)
        exit_if_stopped(folder)
    except RunsFailed:
        print_result(folder, **ways)
        raise


@contextmanager
def following(folder: Path, named: str, metric: Callable[[], Metric], *, as_json: bool) -> Iterator[Progress]:
    """Show the progress of a run; if it is stopped, say how to continue, and if the input is wrong, name its source."""
    from edgefl.record.paths import how_to_continue, is_interrupted
    from edgefl.report.progress import Progress

    display = Progress(metric, sys.stderr)
    try:
        with locating(file=named), quiet(as_json):
            yield display
    except KeyboardInterrupt:
        if is_interrupted(folder):
            raise Stopped(f"to continue: {how_to_continue(folder)}") from None
        raise
    finally:
        display.clear()


def chosen_labels(scenario: Scenario | AppScenario, wanted: list[str] | None) -> list[str] | None:
    """The chosen methods in the scenario's order, or ``None`` for all of them."""
    labels = [method.label for method in scenario.methods]
    for name in wanted or ():
        if name not in labels:
            message = f"the scenario '{scenario.name}' has no method labelled '{name}'; {nearest(name, labels)}"
            raise UserError(message, file=f"--method {name}")
    return [label for label in labels if label in wanted] if wanted else None


def exit_if_stopped(run: Path) -> None:
    """End with exit code 1 if one of the finished runs in a folder diverged or stalled."""
    from edgefl.record.summary import read_run

    runs = [(label, each) for label, found in read_run(run)[1].methods.items() for each in found]
    stopped = False
    for reason in ("diverged", "stalled"):
        if found := [f"{label}, seed {each.seed}" for label, each in runs if each.stop.reason == reason]:
            say(f"{len(found)} of {len(runs)} runs {reason}: {'; '.join(found)}", err=True)
            stopped = True
    if stopped:
        raise typer.Exit(1)


def print_result(run: Path, *, as_json: bool, detailed: bool = False) -> None:
    """Print a finished run at a glance or in detail, and draw its picture; or print its summary as JSON."""
    from edgefl.flower.scenario import app_scenario_of
    from edgefl.report import RunResult, comparison, comparison_rows, none_completed_a_round, write_pictures
    from edgefl.report.glance import next_steps

    result = RunResult(run)
    nothing = none_completed_a_round(comparison_rows(result))
    try:
        pictures = write_pictures(result) if not nothing else []
    except Exception as error:  # noqa: BLE001  (the run is complete without its picture)
        say(f"warning: {result.paths.picture} cannot be drawn: {in_words(error)}", err=True)
        pictures = []
    if as_json:
        say(result.paths.summary.read_text(encoding="utf-8"), nl=False)
        if not result.trained:
            say("nothing was trained (--no-train): the accuracies are not meaningful", err=True)
        return
    if nothing and all(each.faulted for results in result.results.values() for each in results):
        say(f"{run}: no method completed a round")  # the error that follows says why
        return
    show(comparison(result, detailed=detailed))
    say("")
    for line in next_steps(result, run, pictures):
        say(line)
    every = [each for results in result.results.values() for each in results]
    if any(each.ended_by_budget for each in every) and app_scenario_of(run) is None:
        say(f"More     edgefl simulate --resume {run} --set stop=rounds   (or a larger budget)")
