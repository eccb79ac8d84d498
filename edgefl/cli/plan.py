"""``edgefl plan``: predict what a scenario will cost, without training; or answer questions about a finished run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from edgefl.cli.arguments import Changes, Device, Json, Methods, Trust, argument, check_options, option
from edgefl.cli.printing import print_table, quiet, say, say_json, show
from edgefl.errors import UserError, one_line
from edgefl.files import user_path
from edgefl.record import RunPaths
from edgefl.record.names import SWEEP
from edgefl.wording import counted

if TYPE_CHECKING:
    from edgefl.planning.observation import Plan
    from edgefl.planning.training_time import TrainingTime
    from edgefl.record.metric import Metric


def plan(  # noqa: PLR0917  (Typer reads options from the signature)
    context: typer.Context,
    scenario: str = argument(
        ...,
        "A YAML file, or a shipped scenario's name; with --for or --seeds-for, a run directory.",
        metavar="SCENARIO",
    ),
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
    grid: list[str] | None = option(
        None,
        "Plan with each of these values, in all combinations, in one table: model=cnn,mlp; repeatable.",
        metavar="PATH=V1,V2",
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
    published: bool = option(
        False,
        "Price the rounds that the scenario's paper reports, and search the link rates with which each method is "
        "faster than the first one (the first --method).",
        "--published",
    ),
    on: str | None = option(
        None, "With --published: a fleet of each of these devices.", "--on", metavar="DEVICE,…", unset="the scenario's"
    ),
    here: bool = option(
        False, "Also time a few local steps of each method: how long does this machine train the scenario?", "--here"
    ),
    device: Device = "auto",
    start: str | None = option(
        None,
        "Simulate all rounds, or --rounds, at each full hour after the scenario's start: grams and euros by the hour.",
        "--start",
        metavar="0h..24h",
    ),
    power: float = option(0.8, "With --seeds-for: the probability to decide the difference."),
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Predict the cost of a round of each method, the devices that cannot take part, and how many rounds budgets allow.

    Nothing is trained: some rounds are simulated with neutral numbers instead of losses and accuracies. With --for, a
    finished run is simulated again with its recorded training. With --seeds-for, the spread of its methods' differences
    by seed gives the number of seeds that comparisons need. With --published, the numbers of rounds are a paper's.
    """
    modes = {
        "seeds_for": ["scenario", "method", "power", "as_json"],
        "condition": ["scenario", "method", "vary", "trust", "as_json"],
        "published": ["scenario", "changes", "method", "rounds", "seed", "on", "as_json"],
        "here": ["scenario", "changes", "method", "rounds", "seed", "device", "as_json"],
        "start": ["scenario", "changes", "method", "rounds", "seed", "as_json"],
        "grid": ["scenario", "changes", "method", "rounds", "seed", "as_json"],
    }
    needs = {"on": ["published"], "device": ["here"]}
    check_options(context, modes, {**needs, "power": ["seeds_for"], "vary": ["condition"], "trust": ["condition"]})
    if seeds_for is not None:
        _print_seeds(scenario, seeds_for, power, method, as_json=as_json)
        return
    if condition is not None:
        _print_answers(scenario, condition, method, vary or [], trust=trust, as_json=as_json)
        return
    if start is not None:
        with quiet(as_json):
            from pathlib import Path
            from tempfile import TemporaryDirectory

            from edgefl.planning.planning import plan_starts
            from edgefl.report.starts import starts_between, starts_table
            from edgefl.scenario import load_scenario

            given = {"training.rounds": rounds, "seeds": None if seed is None else [seed]}
            only = [f"{path}={value}" for path, value in given.items() if value is not None]
            own = load_scenario(scenario, [*(changes or ()), *only])
            with TemporaryDirectory() as folder:
                table = starts_table(plan_starts(own, starts_between(own.start, start), Path(folder), method))
        say(table.json(), nl=False) if as_json else show(table)
        return
    paths = RunPaths(user_path(scenario))
    if paths.summary.is_file():
        raise UserError(
            "is a run directory: add --for 'accuracy=0.9 within 1h' or --seeds-for 1pt, or plan its scenario, "
            f"{paths.scenario}",
            file=scenario,
        )
    if grid:
        from edgefl.cli.plan_grid import show_grid

        show_grid(scenario, changes or (), grid, as_json=as_json, methods=method, rounds=rounds, seed=seed)
        return
    with quiet(as_json):
        from edgefl.planning.observation import Plan
        from edgefl.planning.planning import plan as make
        from edgefl.planning.pricing import Prices, price
        from edgefl.planning.training_time import training_times
        from edgefl.scenario import load_scenario
        from edgefl.scenario.overrides import blaming_changes

        chosen = load_scenario(scenario, changes or ())
        with blaming_changes(changes or (), scenario):
            if published:
                made: Plan | Prices = price(
                    chosen, on=on.split(",") if on else (), methods=method, rounds=rounds, seed=seed
                )
            else:
                made = make(chosen, methods=method, rounds=rounds, seed=seed)
            trained = training_times(chosen, made, device) if here and isinstance(made, Plan) else []
    if as_json:
        say_json(asdict(made) | ({"training": [asdict(each) for each in trained]} if here else {}))
    elif isinstance(made, Prices):
        from edgefl.cli.plan_published import show_prices

        show_prices(made)
    else:
        show(made.table([_here(each) for each in trained]))


def _here(each: TrainingTime) -> str:
    from edgefl.report.quantities import quantity

    simulated = "" if each.simulated is None else f", for {quantity(each.simulated, 'seconds')} simulated"
    return (
        f"{each.label}: this machine trains {counted(each.rounds, 'round')} of a seed in about "
        f"{quantity(each.seconds, 'seconds')} ({each.device}, engine {each.engine}, "
        f"{quantity(each.step_seconds, 'seconds')} a local step){simulated}."
    )


def _print_answers(
    run: str, condition: str, methods: list[str] | None, vary: list[str], *, trust: bool, as_json: bool
) -> None:
    path = user_path(run)
    if not path.is_dir():
        raise UserError(f"--for needs the folder of a finished run, from edgefl simulate {run} --out RUN", file=run)
    if (path / SWEEP).is_file():
        raise UserError(f"is a sweep: --for needs one of its runs, a folder in {path / 'jobs'}", file=run)
    from edgefl.rerun.inverse import ask

    def answered(label: str, left: int) -> None:
        if left:
            say(f"{label}: answered; {left} left", err=True)

    with quiet(as_json):
        found = ask(path, condition, methods=methods, vary=vary, trust=trust, answered=answered)
    if as_json:
        say_json(found)
    else:
        from edgefl.report import RunResult

        _print(found, RunResult(path).metric)


def _print(found: Mapping[str, Any], metric: Metric) -> None:
    from edgefl.report.quantities import limit, quantity
    from edgefl.rerun.inverse import QUESTIONS

    limits, of_seeds = found["limits"], ", the most of any seed" * (len(found["seeds"]) > 1)
    notes, rows = [], []
    for method in found["methods"]:
        label = method["label"]
        if method["spent"] is not None:
            own = ", ".join(quantity(amount, kind) for kind, amount in method["spent"].items())
            notes.append(f"{label} itself needs {own}{of_seeds}.")
        if method["needs_training"] is not None:
            others = " for the other questions" * bool(method["answers"])
            notes.append(f"{label} needs training{others}: {method['needs_training']}.")
        for name, answer in method["answers"].items():
            asked = QUESTIONS[name].words if name in QUESTIONS else f"least {name.removeprefix('network.')}"
            rows.append([label, asked, *_cells(name, answer, limits)])
    notes.append(
        "Found by bisection: every seed meets the condition at the factor, not 1 % beyond it. Nothing was trained; a "
        "larger model is assumed to reach the same metric."
    )
    smoothed = "smoothed " * found["metric"].endswith("_ema")
    within = ", ".join(limit(amount, kind) for kind, amount in limits.items())
    heads = ["method", "question", "factor", "that is", "beyond it"]
    title = f"{smoothed}{metric.word} {limit(found['value'], metric.dimension)} within {within}"
    print_table(heads if rows else [], rows, title=title, notes=notes, words=(0, 1, 3, 4))


def _cells(name: str, found: Mapping[str, Any], limits: Mapping[str, float]) -> tuple[str, str, str]:
    """The factor, what it is in absolute values, and what fails beyond it."""
    from edgefl.report.quantities import limit

    met, missed, different = found["met"], found["missed"], found["different"]
    reasons = {kind: f"more than {limit(amount, kind)}" for kind, amount in limits.items()}
    reasons["memory"] = f"too little memory: {different}"
    reasons["training"] = "a client runs empty" if name == "battery" else f"other training: {different}"
    beyond = reasons.get(found["why"], "–")
    if met is None:
        return f"none {_end(missed)}", "–", beyond
    return f"any {_end(met)}" if missed is None else rounded_away(met, missed), _absolute(name, found), beyond


def _end(factor: float) -> str:
    """The end of the range that was searched.

    >>> _end(0.001), _end(1000.0)
    ('down to 0.001', 'up to 1000')
    """
    return f"{'up' if factor > 1 else 'down'} to {factor:g}"


def rounded_away(met: float, missed: float) -> str:
    """A factor with three digits, rounded away from the boundary.

    >>> rounded_away(0.28324, 0.282), rounded_away(3.4879, 3.49)
    ('0.284', '3.48')
    """
    unit = 10.0 ** (math.floor(math.log10(met)) - 2)
    return f"{(math.floor(met / unit + 1e-9) if missed > met else math.ceil(met / unit - 1e-9)) * unit:.3g}"


def _absolute(name: str, figures: Mapping[str, Any]) -> str:
    from edgefl.report.quantities import quantity

    if "joules" in figures:
        joules = figures["joules"]
        return f"{quantity(float(rounded_away(joules, 0.0)), 'joules')} = {joules / 3600:.3g} Wh"
    if "bytes" in figures:
        return f"{quantity(figures['bytes'], 'bytes')}, {quantity(figures['flops'], 'flops')} a step"
    if "device" in figures:
        return f"{figures['device']}: {quantity(figures['step_seconds'], 'seconds')} a step"
    rates = ", ".join(f"{figures[way] / 1e6:.3g} Mbit/s {way}" for way in ("down", "up") if way in figures)
    whose = "" if "topology" in name else "the median client's link: "
    return f"{whose}{rates}" if rates else "the given seconds of local training"


def _print_seeds(run: str, difference: str, power: float, methods: list[str] | None, *, as_json: bool) -> None:
    from edgefl.report.glance import about
    from edgefl.report.run_result import RunResult
    from edgefl.report.seed_plan import read_difference, seed_plan
    from edgefl.report.statistics import MOST_SEEDS
    from edgefl.report.table import Column, Table, words

    if not 0.0 < power < 1.0:
        raise UserError(f"expected a probability between 0 and 1, found {one_line(power)}", file="--power")
    record = RunResult(run)
    found = seed_plan(record, read_difference(difference, record.metric), power=power, methods=methods)
    if as_json:
        say_json(found.as_dict())
        return

    def counts(seeds: Iterable[int | None]) -> list[str]:
        return [f"> {MOST_SEEDS}" if each is None else str(each) for each in seeds]

    share, pairs = record.metric.share, found.pairs
    unit, scale = ("points", 100.0) if share else (record.metric.word, 1.0)
    columns = [
        words("difference of", [f"{pair.method} – {pair.other}" for pair in pairs]),
        Column("seeds", [str(pair.seeds) for pair in pairs]),
        Column(f"mean, {unit}", [f"{scale * pair.mean:.3g}" for pair in pairs]),
        Column(f"deviation, {unit}", [f"{scale * pair.deviation:.3g}" for pair in pairs]),
        Column("seeds needed", counts(pair.needed for pair in pairs)),
        Column("cautious", counts(pair.cautious for pair in pairs)),
        Column("among all", counts(pair.among_all for pair in pairs)),
    ]
    notes = [
        f"Seeds needed: Student's t test decides a true difference of {scale * found.difference:.3g} {unit} at 95 % "
        f"with a probability (power) of {100 * found.power:.3g} %. Cautious: with the upper 80 % bound of the "
        "deviation, which few seeds do not show well. Among all: if a method is compared with all others (Holm).",
        *(f"{one} and {other} have fewer than two seeds in common." for one, other in found.unknown),
    ]
    show(Table(columns, notes))
    if found.more:
        say(f"To add them{about(record, found.more)}: edgefl simulate {record.path} --add-seeds {found.more}")
