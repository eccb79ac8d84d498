"""``edgefl schedule``: compare schedulers over the same rounds of a scenario's world, without training."""

from __future__ import annotations

from dataclasses import asdict

from edgefl.cli.arguments import Changes, Json, Scenario, option
from edgefl.cli.printing import say_json, show


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
    say_json(asdict(made)) if as_json else show(made.table())
