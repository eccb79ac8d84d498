"""``edgefl profile measure``: this machine as a device profile, from real training steps."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefl.errors import UserError

if TYPE_CHECKING:
    from edgefl.fleet.fitting import Rates
    from edgefl.learning.cost.calibration import TimedStep


def measure_profile(  # noqa: PLR0917  (the command's options)
    output: Annotated[Path, typer.Option("--output", "-o", help="The profile file to write; must not exist yet.")],
    name: Annotated[str, typer.Option(help="What scenarios are to call the device.")] = "this-machine",
    threads: Annotated[int, typer.Option(min=0, help="Threads that train; 0: as many as PyTorch would take.")] = 0,
    seconds: Annotated[float, typer.Option(min=0.05, help="Seconds for each of the 17 steps that are timed.")] = 1.0,
    idle_watts: Annotated[
        float | None, typer.Option("--idle-watts", min=0, help="The machine's watts at rest.", show_default="estimated")
    ] = None,
    compute_watts: Annotated[
        float | None,
        typer.Option("--compute-watts", min=0, help="Its watts while it trains.", show_default="estimated"),
    ] = None,
) -> None:
    """Measure this machine with real training steps, and write a profile of it.

    Nine steps of four model families give the roofline; eight of others, with other methods, check it. Power is not
    measured: give it, or take wide bounds.
    """
    if output.exists():
        raise UserError("expected a file that does not exist yet, found one", file=str(output))
    if not output.parent.is_dir():
        raise UserError("expected a file in a folder that exists", file=str(output))
    import torch

    from edgefl.fleet.fitting import fit_rates, relative_errors
    from edgefl.learning.cost.calibration import CALIBRATION, HELD_OUT, matmul_flops_per_second, time_steps

    used = threads or torch.get_num_threads()
    typer.echo(f"Timing training steps on {used} thread{'s' if used > 1 else ''} of {_processor()}.")
    peak = matmul_flops_per_second(threads=used)
    fitted = _timed(time_steps(CALIBRATION, seconds=seconds, threads=used), "calibration")
    rates = fit_rates([(step.operators, step.seconds) for step in fitted])
    checked = _timed(time_steps(HELD_OUT, seconds=seconds, threads=used), "held out")
    misses = relative_errors(rates, [(step.operators, step.seconds) for step in checked])
    misfit = relative_errors(rates, [(step.operators, step.seconds) for step in fitted])
    watts = {"idle": idle_watts, "compute": compute_watts}
    profile = _profile(name, used, max(peak, rates.flops_per_second), rates, misfit=misfit, watts=watts)
    _write(profile, output)
    _print(checked, misses)
    typer.echo(
        f"{rates.flops_per_second / 1e9:.3g} GFLOP/s, {rates.bytes_per_second / 1e9:.3g} GB/s, "
        f"{rates.operator_overhead * 1e6:.3g} us an operator, {rates.step_overhead * 1e3:.3g} ms a step."
    )
    typer.echo(f"Written: {output}")


def _timed(steps: Any, what: str) -> list[TimedStep]:
    timed = []
    for step in steps:
        timed.append(step)
        noisy = ", disturbed" if step.spread > 1.15 else ""
        typer.echo(f"  {what}: {step.case}: {1e3 * step.seconds:.4g} ms ({step.repetitions} times{noisy})")
    return timed


def _print(steps: Sequence[TimedStep], misses: Sequence[float]) -> None:
    typer.echo("Steps of model families and methods that the fit has not seen:")
    for step, miss in zip(steps, misses, strict=True):
        predicted = step.seconds * (1 + miss)
        typer.echo(f"  {step.case}: {1e3 * step.seconds:.4g} ms, predicted {1e3 * predicted:.4g} ms ({miss:+.0%})")
    mean = sum(abs(miss) for miss in misses) / len(misses)
    typer.echo(
        f"Mean error: {mean:.0%}. One rate for all arithmetic overrates grouped convolutions and those of few channels."
    )


def _profile(
    name: str, threads: int, peak: float, rates: Rates, *, misfit: Sequence[float], watts: dict[str, float | None]
) -> dict[str, Any]:
    from edgefl.fleet import DeviceProfile
    from edgefl.validation import validated

    # What the fit missed its own steps by is the least that its figures are uncertain by.
    factor = 1 + max(0.1, sum(abs(miss) for miss in misfit) / len(misfit))

    def around(figure: float) -> dict[str, float]:
        return {"low": figure / factor, "nominal": figure, "high": figure * factor}

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    estimates = {"idle": {"low": 5, "nominal": 30, "high": 90}, "compute": {"low": 10, "nominal": 65, "high": 250}}
    power: dict[str, Any] = {key: estimates[key] if given is None else given for key, given in watts.items()}
    radio = {
        "active": {"low": 0.1, "nominal": 0.3, "high": 0.6},
        "energy_per_megabyte": {"low": 0.002, "nominal": 0.005, "high": 0.02},
    }
    fitted = "fitted to nine timed training steps of four model families; bounds: the fit's mean error, at least 10 %"
    wire = "estimated: Gigabit Ethernet"
    profile = {
        "name": name,
        "kind": "pc",
        "description": f"{_processor()}, {threads} threads, measured by edgefl profile measure",
        "compute": {
            "processor": _processor(),
            "fp32_peak": peak,
            "fp32_achievable": around(rates.flops_per_second),
            "memory_bandwidth": around(rates.bytes_per_second),
            "operator_overhead": around(rates.operator_overhead),
            "step_overhead": around(rates.step_overhead),
        },
        "memory": {"total": memory, "training": {"low": 0.6 * memory, "nominal": 0.8 * memory, "high": 0.95 * memory}},
        "power": {**power, "radio": {"down": radio, "up": radio}},
        "provenance": {
            "sources": ["edgefl profile measure on the machine itself"],
            "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
            "verified": False,
            "derivation": {
                "compute.fp32_peak": "measured: the fastest product of square matrices",
                **{
                    f"compute.{figure}": fitted
                    for figure in ("fp32_achievable", "memory_bandwidth", "operator_overhead", "step_overhead")
                },
                "memory.total": "as the system reports it",
                "memory.training": "estimated: a part of the total",
                **{
                    f"power.{key}": "estimated: any PC" if given is None else "given by the user"
                    for key, given in watts.items()
                },
                **{
                    f"power.radio.{way}.{figure}": wire
                    for way in ("down", "up")
                    for figure in ("active", "energy_per_megabyte")
                },
            },
        },
    }
    validated(DeviceProfile, profile)
    return profile


def _write(profile: dict[str, Any], output: Path) -> None:
    from ruamel.yaml import YAML

    from edgefl.cli.profile import tidy

    yaml = YAML(typ="rt", pure=True)
    yaml.width = 120
    with output.open("w", encoding="utf-8") as file:
        yaml.dump(tidy(profile), file)


def _processor() -> str:
    """The processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        if names:
            return names[0]
    except OSError:
        pass
    return platform.processor() or platform.machine()
