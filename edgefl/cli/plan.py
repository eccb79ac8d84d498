"""``edgefl plan``: predict what a scenario will cost, without training; or answer questions about a finished run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from edgefl.cli.arguments import Changes, Json, Methods, Trust, argument, option
from edgefl.cli.plan_run import print_answers, print_seeds, refuse_run
from edgefl.cli.printing import quiet, say_json, show
from edgefl.errors import UserError

if TYPE_CHECKING:
    from edgefl.planning.observation import BudgetPlan, MethodPlan, Plan
    from edgefl.report.table import Column


def plan(  # noqa: PLR0917  (Typer reads options from the signature)
    scenario: Annotated[
        str,
        argument(
            ...,
            "A YAML file, or a shipped scenario's name; with --for or --seeds-for, a run directory.",
            metavar="SCENARIO",
        ),
    ],
    changes: Changes = None,
    method: Methods = None,
    rounds: int | None = option(None, "Rounds to simulate for each method.", min=1, unset="by cohort and methods"),
    seed: int | None = option(None, "Seed of the fleet and of random draws.", min=0, unset="the scenario's first"),
    condition: str | None = option(
        None,
        "METRIC=VALUE within QUANTITY [and within QUANTITY…]: search the least bandwidth, the slowest "
        "devices, the smallest batteries and the largest model with which a finished run meets it.",
        "--for",
        metavar="CONDITION",
    ),
    vary: list[str] | None = option(
        None,
        "With --for: search only the least capacity of these links, such as network.links.lte.up; repeatable.",
        metavar="PATH",
    ),
    seeds_for: str | None = option(
        None,
        "1pt, or a number in the metric's unit: how many seeds each two methods of a finished run need so "
        "that this difference is decided.",
        metavar="DIFFERENCE",
    ),
    power: float | None = option(None, "With --seeds-for: the probability to decide the difference.", unset="0.8"),
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Predict the cost of a round of each method, the devices that cannot take part, and how many rounds budgets allow.

    Nothing is trained: some rounds are simulated with neutral numbers instead of losses and accuracies. With --for, a
    finished run is simulated again with its recorded training. With --seeds-for, the spread of its methods' differences
    by seed gives the number of seeds that comparisons need.
    """
    if seeds_for is not None:
        if changes or rounds is not None or seed is not None or condition is not None or trust:
            raise UserError("cannot be combined with --set, --rounds, --seed, --for or --trust", file="--seeds-for")
        print_seeds(scenario, seeds_for, power, method, as_json=as_json)
        return
    if power is not None:
        raise UserError("expected it with --seeds-for", file="--power")
    if vary and condition is None:
        raise UserError("expected it with --for", file="--vary")
    if condition is not None:
        if changes or rounds is not None or seed is not None:
            raise UserError("cannot be combined with --set, --rounds or --seed", file="--for")
        print_answers(scenario, condition, method, vary or [], trust=trust, as_json=as_json)
        return
    refuse_run(scenario)
    with quiet(as_json):
        from edgefl.planning.planning import plan as make
        from edgefl.scenario import load_scenario

        chosen = load_scenario(scenario, changes or ())
        try:
            made = make(chosen, methods=method, rounds=rounds, seed=seed)
        except UserError as error:
            raise error.located(file=scenario) from None
    if as_json:
        say_json(made.as_dict())
    else:
        from edgefl.report.table import Table

        show(Table(_columns(made), _notes(made)))


def _columns(made: Plan) -> list[Column]:
    """A row for each method and device."""
    from edgefl.report.table import Column, figures, words

    rows = [(method, device) for method in made.methods for device in method.devices]
    devices = [device for _, device in rows]
    closes = [f"{100 * each.closes:.0f} %" for each in devices]
    return [
        words("method", [method.label for method, _ in rows]),
        words("device", [each.device for each in devices]),
        Column("clients", [f"{each.clients - each.refused}/{each.clients}" for each in devices]),
        figures("memory", [each.peak_memory_bytes for each in devices], "bytes"),
        figures("computing", [each.compute_seconds.nominal for each in devices], "seconds"),
        figures("download", [each.download_seconds for each in devices], "seconds"),
        figures("upload", [each.upload_seconds for each in devices], "seconds"),
        figures("energy", [each.joules and each.joules.nominal for each in devices], "joules"),
        Column("last in", closes),
    ]


def _notes(made: Plan) -> list[str]:
    """A sentence about the rounds of each method, and what the reader must know."""
    evidence = {device.device: device.evidence for each in made.methods for device in each.devices}
    notes = [line for each in made.methods for line in _rounds(each)]
    notes.append(
        f"Nothing was trained: means over {made.rounds} simulated rounds, seed {made.seed}. Rows: one participation; "
        "clients: those with enough memory; last in: rounds that wait for this device. --json has the bounds."
    )
    notes.append(f"Seconds of a step: {'; '.join(f'{device} {text}' for device, text in evidence.items())}.")
    other = {each.device: (each.radio, each.link) for method in made.methods for each in method.devices if each.radio}
    if other:
        which = "; ".join(f"{device} {radio}, its link is {link}" for device, (radio, link) in other.items())
        notes.append(f"Watts of a radio that are of another network: {which}.")
    if made.queue_spread is not None:
        notes.append(f"Links are shared unequally, as drawn by seed {made.seed} (spread {made.queue_spread:g}).")
    return notes + ([f"When this machine trains: {made.advice}."] if made.advice is not None else [])


def _rounds(each: MethodPlan) -> Iterator[str]:
    from edgefl.report.quantities import quantity

    time = "–" if math.isnan(each.seconds) else quantity(each.seconds, "seconds")
    costs = [time, quantity(each.bytes_down + each.bytes_up, "bytes"), quantity(each.joules.nominal, "joules")]
    parts = [f"a round takes {', '.join(costs)}"]
    if each.aggregated != each.participants:
        parts.append(f"{each.aggregated:.3g} of {each.participants:.3g} updates are aggregated")
    parts += [f"limited by {each.holds_back}"] if each.holds_back is not None else []
    parts += [_reach(budget) for budget in each.budgets if not budget.lasts]
    if each.budgets and all(budget.lasts for budget in each.budgets):
        parts.append(f"all budgets last for {each.budgets[0].rounds} rounds")
    if each.breaks:
        wait = quantity(each.wait_seconds, "seconds")
        parts.append(f"{each.breaks:.3g} broken attempts to transfer a round, each with a wait of {wait}")
    yield f"{each.label}: {'; '.join(parts)}."
    if each.in_vain is not None:
        yield f"{each.label}: {each.in_vain}."
    for device in each.devices:
        if device.why is not None:
            which = f"{device.refused} of {device.clients} {device.device}"
            yield f"{each.label}: {which} cannot train this: {device.why}."


def _reach(budget: BudgetPlan) -> str:
    """How many rounds a budget allows: ``21 s last for about 54 rounds``."""
    from edgefl.report.quantities import limit

    named = limit(budget.limit, budget.kind) + " a client" * (budget.kind == "client_bytes")
    return f"{named} last for {'about ' if budget.foreseen else ''}{budget.rounds} rounds"
