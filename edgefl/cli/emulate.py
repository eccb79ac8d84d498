"""``edgefl emulate``: run a scenario as processes over shaped links."""

import math
from pathlib import Path
from typing import Literal

import typer

from edgefl.cli.arguments import Changes, Device, Methods, NoTrain, Seeds, argument, new_folder, option
from edgefl.cli.printing import say
from edgefl.cli.simulate import chosen_labels, exit_if_stopped, following, print_result
from edgefl.errors import UserError


def emulate(  # noqa: PLR0917  (Typer reads options from the signature)
    scenario: str | None = argument(None, "A YAML file, or a shipped scenario's name.", metavar="SCENARIO"),
    rounds: int | None = option(None, "How many rounds.", min=1, unset="the scenario's"),
    out: Path | None = new_folder("The run directory; runs/NAME-emulated if not given."),
    method: Methods = None,
    changes: Changes = None,
    seed: Seeds = None,
    device: Device = "auto",
    no_train: NoTrain = False,
    dilate: float | None = option(None, "Real seconds for one second of the scenario.", unset="chosen by rule"),
    check: bool = option(False, "Only say what this machine can do; exit code 1 where it cannot emulate.", "--check"),
    compute: Literal["paced", "real"] = option(
        "paced", "Local training takes the predicted seconds, or trains under the CPU quota of each client's profile."
    ),
    as_json: bool = option(False, "Print only summary.json to standard output.", "--json"),
) -> None:
    """Run a scenario as real processes that transfer real bytes over shaped links, and compare with its simulation."""
    if check:
        _print_check()
        return
    if scenario is None:
        raise UserError("expected a scenario: a YAML file, or a shipped scenario's name", file="SCENARIO")
    if dilate is not None and not 0.0 < dilate < math.inf:
        raise UserError(f"expected a finite number above 0, found {dilate}", file="--dilate")
    from edgefl.emulation.emulate import emulate as emulated
    from edgefl.emulation.emulate import free_folder_of_prediction
    from edgefl.scenario import load_scenario, rehearse

    changed = [*(changes or ()), *([f"training.rounds={rounds}"] if rounds is not None else ())]
    chosen = load_scenario(scenario, changed)
    chosen = chosen.with_seeds(seed) if seed else chosen
    labels = chosen_labels(chosen, method)
    folder = out if out is not None else Path("runs") / f"{chosen.name}-emulated"
    free_folder_of_prediction(folder)
    rehearse(chosen, file=scenario, overrides=changed)
    with following(folder, scenario, lambda: chosen.task.measured, as_json=as_json) as display:
        runs = emulated(
            chosen,
            out=folder,
            methods=labels,
            device=device,
            train=not no_train,
            dilation=dilate,
            say=lambda text: say(text, err=True),
            compute=compute,
            listeners=[display],
        )
    print_result(runs.measured, as_json=as_json)
    compare = f"edgefl report {runs.measured} --against {runs.predicted}"
    say(f"prediction: {runs.predicted}; to compare: {compare}", err=as_json)
    exit_if_stopped(runs.measured)


def _print_check() -> None:
    from edgefl.emulation.machine import check, missing

    findings = check()
    width = max(len(each.what) for each in findings)
    for each in findings:
        mark = "yes" if each.works else "no " if each.needed else "-  "
        say(f"{each.what:<{width}}  {mark}  {each.detail}")
    lack = missing(findings)
    say(lack or "this machine can emulate")
    if lack:
        raise typer.Exit(1)
