"""``edgefl bench``: measure how fast this machine trains and simulates; alternatives take turns in one process."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from edgefl.cli.arguments import Json
from edgefl.cli.printing import say, say_json

METHODS = ("fedprox", "fedmlb", "fedalign", "moon", "fedadc")
"""Methods compared with FedAvg if none is given."""

app = typer.Typer(help="Measure edgefl's own speed.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure edgefl's own speed."""


@app.command()
def training(  # noqa: PLR0917  (one parameter for each option; typer passes them by name)
    cases: Annotated[
        list[str] | None,
        typer.Option("--case", metavar="NAME", help="Run only this case; repeatable.", show_default="all"),
    ] = None,
    engines: Annotated[
        list[str] | None,
        typer.Option("--engine", metavar="NAME", help="Only this engine; repeatable.", show_default="all available"),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            metavar="NAME",
            help="Compare this method's time with FedAvg's; repeatable.",
            show_default="five methods on the first case, none if --case is given",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="FILE",
            help="A device profile of this machine, to predict the methods' times.",
            show_default="measure this machine for a minute first",
        ),
    ] = None,
    precisions: Annotated[
        list[str] | None,
        typer.Option(
            "--precision",
            metavar="NAME",
            help="float32, tf32 or bfloat16; repeatable.",
            show_default="float32, and bfloat16 where the processor has instructions for it",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    scenario: Annotated[
        str | None,
        typer.Option(
            "--scenario", help="Also measure the share of time outside training for each method of this scenario."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A short run that checks that everything works.")] = False,
    as_json: Json = False,
) -> None:
    """Measure each engine against plain centralised PyTorch training, in turn, and print the ratios.

    Centralised training is tuned: channels-last, fused optimiser, all cores. It runs once with the clients' batch size
    and once with the whole cohort's batch. Predicted times of methods come from a profile of this machine.
    """
    from edgefl.benchmarks.cases import CASES
    from edgefl.benchmarks.prediction import MEASURING_SECONDS, by_measuring, by_profile
    from edgefl.benchmarks.training import (
        bench_engines,
        bench_methods,
        known_case,
        known_engines,
        known_precisions,
        precisions_on,
    )
    from edgefl.training.device import choose_device

    place = choose_device(device)
    named = None if engines is None else known_engines(engines, place)
    measured = known_precisions(precisions, place) if precisions else precisions_on(place)
    chosen = [known_case(name) for name in cases or CASES]
    chosen = [case.quick() for case in chosen] if quick else chosen
    if quick and not as_json:
        say("--quick only checks that everything runs; the ratios are not meaningful", err=True)
    if not precisions and "bfloat16" not in measured and not as_json:
        say(
            "bfloat16 is left out: this processor has no instructions for it; --precision bfloat16 measures it",
            err=True,
        )
    found: dict[str, Any] = {"device": place.type, "cases": []}
    predict = None
    if profile is not None:
        predict = by_profile(profile)
    elif (methods or cases is None) and place.type == "cpu" and not quick:
        predict = by_measuring(MEASURING_SECONDS, _print_progress)
    for case in chosen:
        result = bench_engines(case, place, named, measured)
        compared = methods or (METHODS if cases is None and case is chosen[0] else [])
        if compared:
            result["methods"] = bench_methods(case, place, compared, named[0] if named else "sequential", predict)
        found["cases"].append(result)
        if not as_json:
            _print(result)
    if scenario is not None:
        found["outside"] = _outside(scenario, device, quick=quick)
        if not as_json:
            _print_outside(found["outside"])
    if as_json:
        say_json(found)


@app.command()
def simulation(
    quick: Annotated[bool, typer.Option("--quick", help="A short run that checks that everything works.")] = False,
    as_json: Json = False,
) -> None:
    """Measure the simulation without training: flows that share links, large rounds, a large fleet.

    The event rate of SimPy alone is measured in turn with it. It is the upper limit of a simulation that uses SimPy.
    """
    from edgefl.benchmarks.world import bench_world

    found = bench_world(quick=quick)
    if as_json:
        say_json(found)
    else:
        _print_world(found)


def _print_progress(line: str) -> None:
    if not line.startswith("left out"):
        say(f"measuring this machine: {line}", err=True)


def _outside(name: str, device: str, *, quick: bool) -> list[dict[str, Any]]:
    from edgefl.benchmarks.outside import share_outside
    from edgefl.scenario import load_scenario

    changes = {"stop": "rounds"} | ({"training.rounds": 2} if quick else {})
    return share_outside(load_scenario(name, changes), device)


def _print(result: dict[str, Any]) -> None:
    from edgefl.cli.console import print_table

    steps = f"{result['steps']} local step{'s' if result['steps'] != 1 else ''}"
    rows = []
    for row in result["rows"]:
        numbers = (
            *(row["images_per_second"], row["local_steps_per_second"], row["to_centralised_same_batch"]),
            *(row["to_centralised_cohorts_batch"], row["to_float32"], row["peak_bytes"] / 1e6),
            row["seconds_for_all_rounds"],
        )
        rows.append(
            [row["name"], row["precision"], *("" if number is None else _three_digits(number) for number in numbers)]
        )
    print_table(
        [
            *("", "precision", "images/s", "local steps/s", "x same batch", "x cohort's batch", "x float32"),
            *("peak MB", "all rounds, s"),
        ],
        rows,
        title=f"{result['case']}: cohort {result['cohort']} x batch {result['batch']}, {steps}",
    )
    if "methods" in result:
        _print_methods(result["case"], result["methods"])


def _three_digits(number: float) -> str:
    """A number with at least three digits and without an exponent.

    >>> _three_digits(13587.2), _three_digits(426.04), _three_digits(0.0935), _three_digits(1.4362)
    ('13,587', '426', '0.0935', '1.44')
    """
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def _print_methods(case: str, rows: list[dict[str, Any]]) -> None:
    from edgefl.cli.console import print_table

    forms = {"measured": "{:.2f}", "predicted": "{:.2f}", "off": "{:+.0%}", "by_flops": "{:.2f}", "by_bytes": "{:.2f}"}
    print_table(
        ["", "measured", "predicted", "off", "FLOPs", "bytes"],
        [
            [row["method"], *("" if row[name] is None else form.format(row[name]) for name, form in forms.items())]
            for row in rows
        ],
        title=f"{case}: one round, relative to FedAvg",
    )
    for row in rows:
        if row["reason"]:
            say(f"{row['method']}: {row['reason']}")


def _print_outside(rows: list[dict[str, Any]]) -> None:
    from edgefl.cli.console import print_table

    cells = []
    for row in rows:
        outside, share = row["seconds"] - row["working_seconds"], f"{100 * row['share_outside']:.1f} %"
        cells.append([row["method"], f"{row['rounds']:,}", f"{row['seconds']:.2f}", f"{outside:.2f}", share])
    title = f"{rows[0]['scenario']}: wall-clock outside training and evaluation"
    print_table(["", "rounds", "seconds", "outside, s", "share"], cells, title=title)


def _print_world(found: dict[str, Any]) -> None:
    from edgefl.cli.console import print_table

    rows = []
    for row in found["steady"]:
        events, bare = row["events_per_second"], row["bare_events_per_second"]
        numbers = (f"{number:,.0f}" for number in (row["concurrent"], row["flows_per_second"], events, bare))
        rows.append([*numbers, f"{events / bare:.2f}"])
    print_table(["concurrent flows", "flows/s", "events/s", "SimPy alone, events/s", "share"], rows, words=())
    for row in found["rounds"]:
        seconds = f"{row['seconds']:.2f} s ({row['cpu_seconds']:.2f} s of one core)"
        say(f"one round of {row['clients']:,} clients, each limited by {row['held_back_by']}: {seconds}")
    fleet = found["fleet"]
    say(
        f"{fleet['rounds']:,} rounds of {fleet['cohort']} of {fleet['clients']:,} clients without training: "
        f"{fleet['seconds']:.1f} s ({fleet['cpu_seconds']:.1f} s of one core), peak "
        f"{fleet['peak_bytes'] / 2**20:,.0f} MiB with imports, {fleet['written_bytes'] / 1e6:.1f} MB written"
    )
