"""``edgefl plan``: predict what a scenario will cost, without training."""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.cli.printing import say

if TYPE_CHECKING:
    from rich.table import Table

    from edgefl.planning import BudgetPlan, MethodPlan, Plan, Range

_WIDE = 120
"""Columns of a terminal in which a device's row fits on one line."""


def plan(  # noqa: PLR0917  (Typer reads options from the signature)
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A YAML file, or a shipped scenario's name.", show_default=False)
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="PATH=VALUE", help="Change a value first, as in simulate; repeatable.", show_default=False
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", metavar="NAME", help="Only this method; repeatable.", show_default=False),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="Rounds to simulate for each method.", show_default="by cohort and methods"),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of the fleet and of random draws.", show_default="the scenario's first"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict what a round of each method costs on each device, which devices cannot take part, and when budgets end.

    Nothing is trained: some rounds are simulated with neutral numbers instead of losses and accuracies.
    """
    with _garbage_collection_off():
        made = _made(scenario, changes or (), method, rounds, seed)
    if as_json:
        say(json.dumps(made.as_dict(), indent=2))
    else:
        _print(made)


@contextmanager
def _garbage_collection_off() -> Iterator[None]:
    """Switch off the collection of cycles: its passes through all objects of torch take a tenth of a plan's time."""
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
    from edgefl.errors import UserError
    from edgefl.planning import plan as make
    from edgefl.scenario import load_scenario

    chosen = load_scenario(scenario, changes)
    try:
        return make(chosen, methods=methods, rounds=rounds, seed=seed)
    except UserError as error:
        raise error.located(file=scenario) from None


def _print(made: Plan) -> None:
    from rich.markup import escape

    from edgefl.cli.console import standard_output

    console = standard_output()
    # On a narrow terminal a figure's bounds, and the available memory, are printed on the line below it.
    separator = " " if console.width >= _WIDE else "\n"
    console.print(_methods_table(made))
    for each in made.methods:
        console.print()
        console.print(_devices_table(each, separator))
    console.print()
    for each in made.methods:
        if each.holds_back is not None:
            console.print(escape(f"{each.label}: rounds wait for {each.holds_back}."))
        if each.in_vain is not None:
            console.print(escape(f"{each.label}: {each.in_vain}."))
        for device in each.devices:
            if device.why is not None:
                which = f"{device.refused} of {device.clients} {device.device}"
                console.print(escape(f"{each.label}: {which} cannot train this: {device.why}."))
        for budget in each.budgets:
            console.print(escape(f"{each.label}: {_reach(budget)}"))
    console.print(
        f"Nothing was trained: means over {made.rounds} simulated rounds, seed {made.seed}; "
        "in brackets the bounds that the device profiles allow."
    )


def _methods_table(made: Plan) -> Table:
    from rich.table import Table

    from edgefl.report.quantities import quantity

    table = Table("a round of", box=None, pad_edge=False)
    for header in ("rounds", "time", "down", "up", "energy", "joins", "counts"):
        table.add_column(header, justify="right")
    for each in made.methods:
        table.add_row(
            each.label,
            str(each.rounds),
            "–" if math.isnan(each.seconds) else quantity(each.seconds, "seconds"),
            quantity(each.bytes_down, "bytes"),
            quantity(each.bytes_up, "bytes"),
            _range(each.joules, "joules"),
            f"{each.participants:.3g}",
            f"{each.aggregated:.3g}",
        )
    return table


def _devices_table(made: MethodPlan, separator: str) -> Table:
    from rich.table import Table

    from edgefl.report.quantities import quantity

    table = Table(box=None, pad_edge=False)
    table.add_column(made.label, no_wrap=True)
    for header in ("clients", "memory", "computes", "down", "up", "energy", "closes"):
        table.add_column(header, justify="right")
    for device in made.devices:
        seconds = device.download_seconds, device.upload_seconds
        table.add_row(
            device.device,
            str(device.clients) if not device.refused else f"{device.clients - device.refused}/{device.clients}",
            f"{quantity(device.peak_memory_bytes, 'bytes')}{separator}of "
            f"{quantity(device.training_memory_bytes.nominal, 'bytes')}",
            _range(device.compute_seconds, "seconds", separator),
            *("–" if each is None else quantity(each, "seconds") for each in seconds),
            "–" if device.joules is None else _range(device.joules, "joules", separator),
            f"{100 * device.closes:.0f} %",
        )
    return table


def _range(figure: Range, dimension: str, separator: str = " ") -> str:
    from edgefl.report.quantities import quantity

    nominal, low, high = (quantity(number, dimension) for number in (figure.nominal, figure.low, figure.high))
    if figure.low == figure.high:
        return nominal
    if len({each.split()[-1] for each in (nominal, low, high)}) == 1:
        low, high = low.split()[0], high.split()[0]  # print the unit once
    return f"{nominal}{separator}[{low}, {high}]".replace("[", "\\[")


def _reach(budget: BudgetPlan) -> str:
    from edgefl.report.quantities import quantity

    whose = " of each client" if budget.kind == "client_bytes" else ""
    named = quantity(budget.limit, budget.kind.removeprefix("client_")) + whose
    if budget.lasts:
        return f"{named} last for all {budget.rounds} rounds ({quantity(budget.seconds, 'seconds')})."
    foreseen = "about " if budget.foreseen else ""
    return f"{named} end after {foreseen}{budget.rounds} rounds ({quantity(budget.seconds, 'seconds')})."
