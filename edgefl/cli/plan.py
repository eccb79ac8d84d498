"""``edgefl plan``: predict what a scenario will cost, without training; or answer questions about a finished run."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.cli.arguments import Changes, Json, Methods, Trust, argument, option
from edgefl.cli.plan_run import print_answers, print_seeds, refuse_run
from edgefl.cli.printing import print_table, quiet, say, say_json
from edgefl.errors import UserError

if TYPE_CHECKING:
    from edgefl.planning.figures import BudgetPlan, DevicePlan, Plan, Range
    from edgefl.report.grid import Cell


def plan(  # noqa: PLR0917  (Typer reads options from the signature)
    scenario: Annotated[
        str,
        argument(
            metavar="SCENARIO",
            help="A YAML file, or a shipped scenario's name; with --for or --seeds-for, a run directory.",
        ),
    ],
    changes: Changes = None,
    method: Methods = None,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="Rounds to simulate for each method.", show_default="by cohort and methods"),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of the fleet and of random draws.", show_default="the scenario's first"),
    ] = None,
    condition: Annotated[
        str | None,
        option(
            "--for",
            metavar="CONDITION",
            help="METRIC=VALUE within QUANTITY [and within QUANTITY…]: search the least bandwidth, the slowest "
            "devices, the smallest batteries and the largest model with which a finished run meets it.",
        ),
    ] = None,
    seeds_for: Annotated[
        str | None,
        option(
            "--seeds-for",
            metavar="DIFFERENCE",
            help="1pt, or a number in the metric's unit: how many seeds each two methods of a finished run need so "
            "that this difference is decided.",
        ),
    ] = None,
    power: Annotated[
        float | None,
        typer.Option(help="With --seeds-for: the probability to decide the difference.", show_default="0.8"),
    ] = None,
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
    if condition is not None:
        if changes or rounds is not None or seed is not None:
            raise UserError("cannot be combined with --set, --rounds or --seed", file="--for")
        with _garbage_collection_off():
            print_answers(scenario, condition, method, trust=trust, as_json=as_json)
        return
    refuse_run(scenario)
    with _garbage_collection_off(), quiet(as_json):
        made = _made(scenario, changes or (), method, rounds, seed)
    if as_json:
        say_json(made.as_dict())
    else:
        _print(made)


@contextmanager
def _garbage_collection_off() -> Iterator[None]:
    """Switch off garbage collection: its passes through all objects of torch take a tenth of a plan's time."""
    working = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if working:
            gc.enable()


def _made(
    scenario: str, changes: Sequence[str], methods: list[str] | None, rounds: int | None, seed: int | None
) -> Plan:
    from edgefl.planning.planning import plan as make
    from edgefl.scenario import load_scenario

    chosen = load_scenario(scenario, changes)
    try:
        return make(chosen, methods=methods, rounds=rounds, seed=seed)
    except UserError as error:
        raise error.located(file=scenario) from None


def _print(made: Plan) -> None:
    from edgefl.report.quantities import quantity

    methods: list[list[str | Cell]] = [
        [
            each.label,
            str(each.rounds),
            _quantity(None if math.isnan(each.seconds) else each.seconds, "seconds"),
            quantity(each.bytes_down, "bytes"),
            quantity(each.bytes_up, "bytes"),
            _range(each.joules, "joules"),
            f"{each.participants:.3g}",
            f"{each.aggregated:.3g}",
        ]
        for each in made.methods
    ]
    print_table(["one round of", "rounds", "time", "down", "up", "energy", "selected", "aggregated"], methods)
    heads = ["clients", "memory", "compute", "down", "up", "energy", "rounds closed"]
    for each in made.methods:
        print_table([each.label, *heads], map(_device, each.devices))
    for each in made.methods:
        if each.holds_back is not None:
            say(f"{each.label}: rounds are limited mainly by {each.holds_back}.")
        if each.breaks:
            say(
                f"{each.label}: {each.breaks:.3g} attempts to transfer something break at a time-out in a round; the "
                f"waits after them, {quantity(each.wait_seconds, 'seconds')} on average, are not part of down and up."
            )
        if each.in_vain is not None:
            say(f"{each.label}: {each.in_vain}.")
        for device in each.devices:
            if device.why is not None:
                which = f"{device.refused} of {device.clients} {device.device}"
                say(f"{each.label}: {which} cannot train this: {device.why}.")
        for budget in each.budgets:
            say(f"{each.label}: {_reach(budget)}")
    evidence = {device.device: device.evidence for each in made.methods for device in each.devices}
    say(f"Seconds of a step: {'; '.join(f'{device} {text}' for device, text in evidence.items())}.")
    if made.queue_spread is not None:
        say(
            f"Transfers share links unequally, as drawn by seed {made.seed} (queue: fifo, "
            f"spread {made.queue_spread:g}); other seeds give other times."
        )
    if made.advice is not None:
        say(f"When this machine trains: {made.advice}.")
    say(
        f"Nothing was trained: means over {made.rounds} simulated rounds, seed {made.seed}; "
        "in brackets the bounds that the device profiles allow."
    )


def _device(device: DevicePlan) -> list[str | Cell]:
    from edgefl.report.grid import Cell
    from edgefl.report.quantities import quantity

    available = quantity(device.training_memory_bytes.nominal, "bytes")
    return [
        device.device,
        str(device.clients) if not device.refused else f"{device.clients - device.refused}/{device.clients}",
        Cell(quantity(device.peak_memory_bytes, "bytes"), f"of {available}"),
        _range(device.compute_seconds, "seconds"),
        _quantity(device.download_seconds, "seconds"),
        _quantity(device.upload_seconds, "seconds"),
        Cell("–") if device.joules is None else _range(device.joules, "joules"),
        f"{100 * device.closes:.0f} %",
    ]


def _quantity(value: float | None, dimension: str) -> str:
    from edgefl.report.quantities import quantity

    return "–" if value is None else quantity(value, dimension)


def _range(figure: Range, dimension: str) -> Cell:
    """The nominal value, and its bounds as the detail."""
    from edgefl.report.grid import Cell
    from edgefl.report.quantities import quantity

    nominal, low, high = (quantity(number, dimension) for number in (figure.nominal, figure.low, figure.high))
    if figure.low == figure.high:
        return Cell(nominal)
    if len({each.split()[-1] for each in (nominal, low, high)}) == 1:
        low, high = low.split()[0], high.split()[0]  # print the unit once
    return Cell(nominal, f"[{low}, {high}]")


def _reach(budget: BudgetPlan) -> str:
    from edgefl.report.quantities import quantity

    whose = " for each client" if budget.kind == "client_bytes" else ""
    named = quantity(budget.limit, budget.kind.removeprefix("client_")) + whose
    which = "all " if budget.lasts else "about " if budget.foreseen else ""
    rounds = f"{which}{budget.rounds} {'round' if budget.rounds == 1 else 'rounds'}"
    return f"{named} are enough for {rounds} ({quantity(budget.seconds, 'seconds')})."
