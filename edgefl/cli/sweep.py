"""``edgefl sweep``: a scenario under many settings."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefl.cli.simulate import Device, Engine
from edgefl.errors import EdgeflError, UserError

if TYPE_CHECKING:
    from edgefl.experiment.sweep import Chosen, Job, SweepResult


class Metric(StrEnum):
    """What the best setting is chosen by."""

    accuracy = "accuracy"
    best = "best"
    ema = "ema"


def sweep(  # noqa: PLR0917  (Typer reads options from the signature)
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A YAML file, or a shipped scenario's name.", show_default=False)
    ],
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid", metavar="PATH=V1,V2", help="Values to try, with all others; repeatable.", show_default=False
        ),
    ] = None,
    random: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Try only N of the combinations.", show_default="all")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The sweep's folder.", show_default="sweeps/NAME")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", metavar="NAME", help="Only this method; repeatable.", show_default=False),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a value first, as in simulate.", show_default=False),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option("--seed", metavar="N", help="This seed instead; repeatable.", show_default=False),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Jobs at a time.", show_default="one a processor")
    ] = None,
    device: Annotated[Device, typer.Option("--device", help="Where training runs.")] = Device.auto,
    engine: Annotated[
        Engine, typer.Option("--engine", help="How each job trains; ray spreads the jobs themselves.")
    ] = (Engine.sequential),
    no_train: Annotated[bool, typer.Option("--no-train", help="Run devices and network alone.")] = False,
    choose: Annotated[
        Metric | None,
        typer.Option("--choose", help="Print each method's best setting, judged on the validation split."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Run a scenario under every combination of the grid's values; run again to go on after an interruption.

    A job is one setting with one seed. Each has a run directory under DIR/jobs, which report reads; DIR/sweep.parquet
    holds one row for each setting, method and seed.
    """
    from edgefl.experiment.sweep import jobs_of, parse_grid, settings_of
    from edgefl.experiment.sweep import sweep as run
    from edgefl.experiment.sweep.choice import check_split
    from edgefl.scenario import load_scenario

    base = load_scenario(scenario, changes or ())
    said = base.sweep
    values: Any = parse_grid(grid) if grid else said.grid if said is not None else {}
    if not values:
        raise UserError("expected --grid PATH=V1,V2, or a section sweep: in the scenario", file=scenario)
    settings = settings_of(values, random if random is not None else said.random if said and not grid else None)
    made = jobs_of(
        scenario,
        changes or [],
        settings,
        seeds=seed,
        methods=method,
        device=device.value,
        engine=(Engine.sequential if engine is Engine.ray else engine).value,
        train=not no_train,
    )
    if choose is not None:
        check_split(made)
        if no_train:
            raise UserError("nothing is trained, so there is nothing to choose by", file="--choose")
    folder = out if out is not None else Path("sweeps") / base.name
    result = run(made, folder, processes=jobs, cluster=engine is Engine.ray, done=_tell)
    _finish(result, made, choose, as_json=as_json)


def _tell(job: Job, failure: str | None, left: int) -> None:
    setting = ", ".join(f"{path}={value}" for path, value in job.setting.items())
    typer.echo(f"{job.id} ({setting}, seed {job.seed}): {failure or 'done'}; {left} to go", err=True)


def _finish(result: SweepResult, jobs: list[Job], metric: Metric | None, *, as_json: bool) -> None:
    from edgefl.experiment.sweep import choose

    chosen = choose(jobs, result.table, metric.value) if metric is not None else []
    if as_json:
        data = [{**vars(each), "setting": dict(each.setting)} for each in chosen]
        typer.echo(json.dumps({"rows": len(result.table), "failures": result.failures, "chosen": data}, indent=2))
    else:
        typer.echo(f"{result.path / 'sweep.parquet'}: {len(result.table)} rows of {len(jobs)} jobs")
        for each in chosen:
            typer.echo(_sentence(each))
    if result.failures:
        told = "; ".join(f"{id}: {reason}" for id, reason in result.failures.items())
        raise EdgeflError(f"{len(result.failures)} of {len(jobs)} jobs failed: {told}")


def _sentence(chosen: Chosen) -> str:
    setting = ", ".join(f"{path}={value}" for path, value in chosen.setting.items())
    beyond = f"; {' and '.join(chosen.edge)} at the edge of what was tried" if chosen.edge else ""
    return f"{chosen.method}: {setting} ({100 * chosen.value:.1f} %, mean of {chosen.seeds} seeds{beyond})"
