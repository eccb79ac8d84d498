"""``edgefl schedule``: compare schedulers over the same rounds of a scenario's world, without training."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING

from edgefl.cli.arguments import Changes, Json, Scenario, option
from edgefl.cli.printing import say_json, show

if TYPE_CHECKING:
    from edgefl.planning.compare_schedulers import SchedulerComparison


def schedule(  # noqa: PLR0917  (Typer reads options from the signature)
    scenario: Scenario,
    changes: Changes = None,
    rounds: int = option(1000, "Rounds to simulate with each scheduler.", min=1),
    selection: list[str] | None = option(
        None,
        "Compare only this value of training.selection, such as tifl or '{kind: oort, exploration: 0.5}'; repeatable.",
        metavar="VALUE",
    ),
    method: str | None = option(None, "The method that clients train.", metavar="NAME", unset="the scenario's first"),
    seed: int | None = option(None, "Seed of the fleet and of random draws.", min=0, unset="the scenario's first"),
    as_json: Json = False,
) -> None:
    """Compare schedulers over the same rounds, without training, and with the best possible rounds.

    Every selector, and every bandwidth allocation under the scenario's selector: seconds and joules of a round, how
    evenly clients take part, and how soon all have.
    """
    from edgefl.planning.compare_schedulers import compare_schedulers
    from edgefl.scenario import load_scenario
    from edgefl.scenario.overrides import blaming_changes

    chosen = load_scenario(scenario, changes or ())
    with blaming_changes(changes or (), scenario):
        made = compare_schedulers(chosen, rounds=rounds, seed=seed, method=method, selections=selection)
    if as_json:
        say_json(asdict(made))
    else:
        _print(made)


def _print(made: SchedulerComparison) -> None:
    from edgefl.report.table import Table, figures, words

    order = sorted(made.schedulers, key=lambda name: made.schedulers[name].makespan or math.inf)
    found = [made.schedulers[name] for name in order]
    columns = [
        words("scheduler", order),
        figures("round", [each.makespan for each in found], "seconds"),
        figures("× best", [each.ratio_to_optimum for each in found], "number"),
        figures("energy", [each.joules for each in found], "joules"),
        figures("even", [each.jain for each in found], "number"),
        figures("clients", [each.clients_seen for each in found], "fraction"),
        figures("samples", [each.samples_seen for each in found], "fraction"),
        figures("rounds to all", [each.rounds_to_cover for each in found], "count"),
    ]
    title = [sentence] if (sentence := made.sentence()) else []
    left_out = [f"{name} is left out: {why}" for name, why in made.left_out.items()]
    show(Table(columns, [*_notes(made), *left_out], title))


def _notes(made: SchedulerComparison) -> list[str]:
    found = made.schedulers
    notes = [
        f"Means over {made.rounds} rounds of {made.method}, seed {made.seed}; nothing was trained. Even: Jain's "
        "index, 1 if all clients take part equally often; × best: relative to the shortest possible round."
    ]
    if blind := [name for name, each in found.items() if each.reads_losses]:
        notes.append(
            f"All losses are 0 without training, so what these do with losses is not shown: {', '.join(blind)}."
        )
    notes += [
        f"No bound on the best round: {why}." for why in sorted({e.no_bound for e in found.values() if e.no_bound})
    ]
    return notes + [f"{name} ended after {e.rounds} rounds: {e.ended}." for name, e in found.items() if e.ended]
