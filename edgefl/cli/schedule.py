"""``edgefl schedule``: compare schedulers over the same rounds of a scenario's world, without training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.cli.arguments import Changes, Json, Scenario, new_figure_file, option
from edgefl.cli.printing import print_table, say, say_json
from edgefl.errors import UserError

if TYPE_CHECKING:
    from edgefl.planning.compare_schedulers import SchedulerComparison, SchedulerFigures


def schedule(  # noqa: PLR0917  (Typer reads options from the signature)
    scenario: Scenario,
    changes: Changes = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to simulate with each scheduler.")] = 1000,
    selection: Annotated[
        list[str] | None,
        option(
            "--selection",
            metavar="VALUE",
            help="Compare only this value of training.selection, such as tifl or '{kind: oort, exploration: 0.5}'; "
            "repeatable.",
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The method that clients train.", show_default="the scenario's first"),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of the fleet and of random draws.", show_default="the scenario's first"),
    ] = None,
    output: Annotated[Path | None, new_figure_file("Draw a picture of the schedulers.", "--output", "-o")] = None,
    as_json: Json = False,
) -> None:
    """Compare schedulers over the same rounds, without training, and with the best possible rounds.

    Every selector, and every bandwidth allocation under the scenario's selector: seconds and joules of a round, how
    evenly clients take part, and how soon all have.
    """
    from edgefl.planning.compare_schedulers import compare_schedulers
    from edgefl.scenario import load_scenario

    chosen = load_scenario(scenario, changes or ())
    try:
        made = compare_schedulers(chosen, rounds=rounds, seed=seed, method=method, selections=selection)
    except UserError as error:
        raise error.located(file=scenario) from None
    if output is not None:
        _draw(made, output)
    if as_json:
        say_json(made.as_dict())
    else:
        _print(made)


def _draw(made: SchedulerComparison, path: Path) -> None:
    from edgefl.report.command_figures import SchedulerPoint, write_schedulers

    points = [
        SchedulerPoint(name, each.makespan, each.joules, each.jain)
        for name, each in made.schedulers.items()
        if each.makespan is not None and each.joules is not None and each.jain is not None
    ]
    write_schedulers(points, path)


def _print(made: SchedulerComparison) -> None:
    heads = ["scheduler", "makespan", "energy", "Jain", "clients", "samples", "covers all in", "× optimum"]
    order = sorted(made.schedulers.items(), key=lambda each: (each[1].makespan is None, each[1].makespan or 0.0))
    print_table(heads, [_row(name, each) for name, each in order], notes=_notes(made))
    for name, why in made.left_out.items():
        say(f"{name} is left out: {why}")
    if made.sentence():
        say(made.sentence())


def _row(name: str, figures: SchedulerFigures) -> list[str]:
    from edgefl.report.quantities import quantity

    ratio, cover = figures.ratio_to_optimum, figures.rounds_to_cover
    return [
        name,
        "–" if figures.makespan is None else quantity(figures.makespan, "seconds"),
        "–" if figures.joules is None else quantity(figures.joules, "joules"),
        "–" if figures.jain is None else f"{figures.jain:.2f}",
        f"{100 * figures.clients_seen:.0f} %",
        f"{100 * figures.samples_seen:.0f} %",
        "–" if cover is None else f"{cover} rounds",
        "–" if ratio is None else f"{ratio:.2f}",
    ]


def _notes(made: SchedulerComparison) -> list[str]:
    rounds = "1 round" if made.rounds == 1 else f"{made.rounds} rounds"
    notes = [f"Means over {rounds} of {made.method}, seed {made.seed}; nothing was trained."]
    blind = [name for name, each in made.schedulers.items() if each.reads_losses]
    if blind:
        notes.append(
            f"All losses are 0 without training, so what these do with losses is not shown: {', '.join(blind)}."
        )
    if any(each.ratio_to_optimum is not None for each in made.schedulers.values()):
        notes.append(
            "× optimum: seconds of a round, relative to a lower bound on those of any cohort with as many updates."
        )
    without = {each.no_bound for each in made.schedulers.values() if each.no_bound is not None}
    notes += [f"No bound on the best round: {why}." for why in sorted(without)]
    for name, each in made.schedulers.items():
        if each.ended:
            notes.append(f"{name} ended after {each.rounds} rounds: {each.ended}.")
    return notes
