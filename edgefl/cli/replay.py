"""``edgefl replay``: re-time a finished run on another network or on other devices."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from edgefl.cli import arguments
from edgefl.cli.arguments import Details, Json, Methods, Run, Trust, check_options, new_folder, option
from edgefl.cli.printing import say, show
from edgefl.errors import UserError


def replay(  # noqa: PLR0917  (Typer reads options from the signature)
    context: typer.Context,
    run: Run,
    changes: list[str] | None = arguments.changes("Change network, fleet, targets or budgets; repeatable."),
    grid: list[str] | None = option(None, "Replay with each of these values; repeatable.", metavar="PATH=V1,V2"),
    start: str | None = option(
        None,
        "Replay at each full hour after the scenario's start: grams and euros by the hour, and the best one.",
        "--start",
        metavar="0h..24h",
    ),
    out: Path | None = new_folder("Folder for the result; RUN-replayed if not given.", "--out", "-o"),
    method: Methods = None,
    sensitivity: bool = option(
        False,
        "Re-time RUN on slow and fast devices, at ±30 % bandwidth, and with other shares in queues (queue:"
        " fifo); adds the result to RUN and its report.",
        "--sensitivity",
    ),
    details: Details = False,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Re-time a finished run on another network or fleet, without training again, and show what changed.

    The result is, byte for byte, the run directory that a full run would write, as far as the training goes. Methods
    whose decisions read a time are not replayed.
    """
    by_hour = ("run", "changes", "out", "method", "trust", "as_json")
    check_options(context, {"sensitivity": ("run", "trust"), "start": by_hour}, {"as_json": ["start"]})
    if sensitivity:
        _sensitivity(run, trust=trust)
        return
    from edgefl.report import RunResult, comparison
    from edgefl.report.figure_file import write_figure
    from edgefl.report.rows import flat_values
    from edgefl.report.starts import starts_between, starts_figure, starts_table
    from edgefl.rerun.replay import Replay
    from edgefl.sweep.jobs import parse_grid, settings_of

    out = out if out is not None else run.with_name(f"{run.name}-replayed")
    axes = parse_grid(grid or ())
    if out.exists():
        raise UserError("expected a folder that does not exist yet; choose another with --out", file=str(out))
    replayed = Replay(run, method, trust=trust)
    first = RunResult(run)
    first.setting = {}
    if start is not None:
        begins = dict(_said(changes or ())).get("start", first.option("start"))
        axes = {"start": starts_between(begins, start)}
    results = [] if axes else [first]
    for number, values in enumerate(settings_of(axes), 1):
        chosen = [*(changes or ()), *(f"{path}={json.dumps(value)}" for path, value in values.items())]
        folder = out / str(number) if axes else out
        results.append(RunResult(replayed.on(chosen, folder)))
        results[-1].setting = {
            name: value for path, each in _said(chosen) for name, value in flat_values(each, path).items()
        }
        for label, why in replayed.refused.items():
            say(f"{label} is not replayed: {why}; train it there: {_trains(run, label, chosen, folder)}", err=as_json)
    if start is not None:
        table = starts_table(results)
        write_figure(starts_figure(results), out / "starts.png")
        if as_json:
            say(table.json(), nl=False)
            return
        show(table)
        say(f"\nPicture  {out / 'starts.png'}")
    else:
        show(comparison(*results, detailed=details))
    say(f"{'' if start else chr(10)}Runs     {out}{' (1 to ' + str(len(results)) + ')' if axes else ''}")


def _said(changes: Sequence[str]) -> list[tuple[str, Any]]:
    from edgefl.scenario.overrides import parse_overrides

    return [(".".join(each.path), each.value) for each in parse_overrides(changes)]


def _trains(run: Path, label: str, changes: list[str], replayed: Path) -> str:
    from edgefl.record import RunPaths

    options = [word for change in changes for word in ("--set", change)]
    out = replayed.with_name(f"{replayed.name}-{label}")
    return shlex.join(
        ["edgefl", "simulate", str(RunPaths(run).scenario), "--method", label, *options, "--out", str(out)]
    )


def _sensitivity(run: Path, *, trust: bool) -> None:
    from edgefl.report import RunResult
    from edgefl.report.sensitivity import kept_decisions, read_sensitivity, robustness
    from edgefl.rerun.replay import write_sensitivity

    file = write_sensitivity(run, trust=trust)
    found = read_sensitivity(RunResult(run))
    assert found is not None
    for line in [*robustness(found), *kept_decisions(found)]:
        say(line)
    say(f"{file}: shown by edgefl report {run} --html FILE")
