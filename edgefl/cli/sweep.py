"""``edgefl sweep``: run a scenario with many settings."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edgefl.cli.arguments import Changes, Details, Device, Json, Methods, NoTrain, Scenario, Seeds, new_folder, option
from edgefl.cli.printing import Stopped, quiet, say, say_json, show
from edgefl.errors import EdgeflError, UserError
from edgefl.hardware import EngineKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgefl.scenario.sections import OptunaSpec, SweepSpec
    from edgefl.sweep.jobs import Job
    from edgefl.sweep.searching import Chosen
    from edgefl.sweep.sweeping import SweepResult


Figure = Literal["accuracy", "best", "ema", "seconds", "bytes", "flops", "joules", "grams", "euros"]
"""The figure by which the best setting is chosen."""


def sweep(  # noqa: PLR0917  (Typer reads options from the signature)
    scenario: Scenario,
    grid: list[str] | None = option(None, "Values to try, in all combinations; repeatable.", metavar="PATH=V1,V2"),
    random: int | None = option(None, "Try only N combinations, drawn at random.", min=1, metavar="N", unset="all"),
    out: Path | None = new_folder("The sweep's folder; sweeps/NAME if not given."),
    method: Methods = None,
    changes: Changes = None,
    seed: Seeds = None,
    jobs: int | None = option(None, "Number of parallel jobs.", min=1, unset="one per processor"),
    device: Device = "auto",
    engine: EngineKind | None = option(
        None,
        "How each job trains; ray distributes the jobs over a cluster.",
        unset="the scenario's; sequential for auto",
    ),
    no_train: NoTrain = False,
    choose: Figure | None = option(
        None,
        "Print each method's best setting by this metric on the validation split, or by this cost, the least to the "
        "last target.",
    ),
    details: Details = False,
    as_json: Json = False,
) -> None:
    """Run a scenario with every combination of the grid's values. Run the same command again to resume.

    A job is one setting with one seed. Each job has a run directory in DIR/jobs, which report can read;
    DIR/sweep.parquet has one row for each setting, method and seed.
    """
    from edgefl.scenario import load_scenario
    from edgefl.scenario.overrides import Override, parse_overrides
    from edgefl.sweep.jobs import jobs_of, settings_of
    from edgefl.sweep.searching import FIGURES, check_split
    from edgefl.sweep.sweeping import sweep as run

    overrides = parse_overrides(with_grid(changes or [], grid) if grid else changes or [])
    if random is not None:
        overrides.append(Override(("sweep", "random"), random, f"--random {random}"))
    base = load_scenario(scenario, overrides)
    spec = base.sweep
    if spec is None:
        raise UserError("expected --grid PATH=V1,V2, or a section sweep: in the scenario", file=scenario)
    on_cluster = (engine or base.training.engine.kind) == "ray"
    options: dict[str, Any] = {
        "seeds": seed,
        "device": device,
        "engine": None if engine is None or on_cluster else engine,
        "train": not no_train,
        "option": "--grid" if grid else f"{scenario}: sweep:",
    }
    spread: dict[str, Any] = {"processes": jobs, "cluster": on_cluster, "done": _print_done}
    folder = out if out is not None else Path("sweeps") / base.name
    if choose in FIGURES and no_train:
        raise UserError("cannot be combined with --no-train, because nothing is trained", file="--choose")

    optuna = spec.optuna
    make: Callable[..., list[Job]] = partial(jobs_of, scenario, overrides, **options)
    if optuna is not None and no_train:
        raise UserError("a search needs training results; remove this option", file="--no-train")
    try:
        with quiet(as_json):
            if optuna is not None:
                labels = method or [each.label for each in base.methods]
                result = _search(spec, optuna, labels, make, folder, spread)
            else:
                made = make(settings_of(spec.grid, spec.random), methods=method)
                say(f"{len(made)} jobs", err=True)
                if choose is not None and not no_train:
                    check_split(made)
                result = run(made, folder, **spread)
    except KeyboardInterrupt:
        raise Stopped("to continue: run the same command again") from None
    metric = choose or (None if optuna is None else optuna.metric)
    _finish(result, metric, as_json=as_json, detailed=details if optuna is None else None)


def with_grid(changes: list[str], grid: list[str]) -> list[str]:
    """The changes, with the command line's values instead of the scenario's; the kind of search may still be set."""
    from edgefl.scenario.overrides import parse_overrides
    from edgefl.sweep.jobs import parse_grid

    values = parse_grid(grid)
    for change in parse_overrides(changes):
        in_section = change.path == ("sweep",) and isinstance(change.value, dict) and change.value.get("grid")
        if in_section or change.path[:2] == ("sweep", "grid"):
            raise UserError("--grid also sets the values to try; use only one", file=change.origin, field="sweep.grid")
    return ["sweep=null", *changes, f"sweep.grid={json.dumps(values, default=str)}"]


def _search(  # noqa: PLR0917  (the command's own parts)
    spec: SweepSpec,
    options: OptunaSpec,
    labels: list[str],
    make: Callable[..., list[Job]],
    folder: Path,
    spread: dict[str, Any],
) -> SweepResult:
    from edgefl.sweep.searching import check_split, proposals
    from edgefl.sweep.sweeping import search

    def jobs(setting: Any, label: str) -> list[Job]:
        found = make([setting], methods=[label])
        check_split(found, "sweep")
        return found

    # Its jobs are not known beforehand; the jobs of the unchanged scenario identify the search.
    unchanged = [job.id for label in labels for job in jobs({}, label)]
    identity = [json.dumps(spec.model_dump(mode="json"), sort_keys=True), *unchanged]
    return search(proposals(spec, options, labels, jobs), identity, folder, **spread)


def _print_done(job: Job, failure: str | None, left: int) -> None:
    setting = ", ".join(f"{path}={value}" for path, value in job.setting.items())
    say(f"{job.id} ({setting}, seed {job.seed}): {failure or 'done'}; {left} left", err=True)


def _finish(result: SweepResult, metric: Figure | None, *, as_json: bool, detailed: bool | None) -> None:
    """Print the result; ``detailed``: whether with all figures, ``None`` for a search."""
    from edgefl.report.comparison import comparison
    from edgefl.report.sweep_result import results_in
    from edgefl.sweep.searching import choose

    jobs = result.jobs
    chosen = choose(jobs, result.table, metric) if metric is not None else []
    if as_json:
        data = [{**vars(each), "setting": dict(each.setting)} for each in chosen]
        say_json({"rows": len(result.table), "failures": result.failures, "chosen": data})
    else:
        if detailed is not None and not result.failures:
            show(comparison(*results_in(result.path), detailed=detailed))
            say("")
        for each in chosen:
            say(_sentence(each))
        say(f"Table    {result.path / 'sweep.parquet'} ({len(result.table)} rows of {len(jobs)} jobs)")
        say(f"Details  edgefl report {result.path} --details")
    if result.failures:
        reasons = "; ".join(f"{id}: {reason}" for id, reason in result.failures.items())
        raise EdgeflError(f"{len(result.failures)} of {len(jobs)} jobs failed: {reasons}")


def _sentence(chosen: Chosen) -> str:
    from edgefl.report.quantities import quantity

    setting = ", ".join(f"{path}={value}" for path, value in chosen.setting.items())
    beyond = f"; {' and '.join(chosen.edge)} at the edge of the values tried" if chosen.edge else ""
    seeds = "one seed" if chosen.seeds == 1 else f"mean of {chosen.seeds} seeds"
    return f"{chosen.method}: {setting} ({quantity(chosen.value, chosen.dimension)}, {seeds}{beyond})"
