"""``edgefl profile measure``, ``script`` and ``import``: make a device profile from measured training steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from edgefl.cli.printing import say
from edgefl.durable_file import write_output
from edgefl.errors import UserError
from edgefl.record.outputs import new_output_path
from edgefl.user_path import user_path

if TYPE_CHECKING:
    from edgefl.profiling.measured_profile import Fit, Unmeasured
    from edgefl.profiling.measurement import Measurement

Output = Annotated[
    Path,
    typer.Option(
        "--output", "-o", parser=new_output_path, metavar="FILE", help="The file to write; it must not exist."
    ),
]
IdleWatts = Annotated[
    float | None, typer.Option("--idle-watts", min=0, help="Watts of the idle device.", show_default="estimated")
]
ComputeWatts = Annotated[
    float | None,
    typer.Option("--compute-watts", min=0, help="Watts of the device while it trains.", show_default="estimated"),
]
Like = Annotated[
    str | None,
    typer.Option(help="A profile to take kind, power and battery from.", show_default="estimates for a PC"),
]


def measure_profile(  # noqa: PLR0917  (the command's options)
    output: Output,
    name: Annotated[str, typer.Option(help="The name of the profile in scenarios.")] = "this-machine",
    threads: Annotated[int, typer.Option(min=0, help="Threads for training; 0: PyTorch's default.")] = 0,
    seconds: Annotated[float, typer.Option(min=0.05, help="Approximate duration of the measurement.")] = 120.0,
    idle_watts: IdleWatts = None,
    compute_watts: ComputeWatts = None,
    like: Like = None,
) -> None:
    """Measure this machine with real training steps, and write a device profile.

    The roofline of each kind of operator is fitted to chains of layers and whole steps of four networks. Eight steps of
    other model families and methods check it. Power is not measured: pass it as an option, or accept wide bounds.
    """
    rest = _rest(name, like, idle_watts, compute_watts)
    from edgefl.profiling import held_out
    from edgefl.profiling.measure_device import main
    from edgefl.profiling.measurement import measurement_of

    checks = {str(step): step for step in held_out.HELD_OUT}
    # One list, so that steps that check the fit and steps that are fitted are measured in turn, under equal conditions.
    found = main.measurement(
        seconds, threads, say, {**{name: step.case() for name, step in checks.items()}, **main.cases()}
    )
    timed = {name: found["cases"].pop(name) for name in checks if name in found["cases"]}
    found["left_out"] = {name: why for name, why in found["left_out"].items() if name not in checks}
    measurement = measurement_of(found)
    fit = _write(measurement, rest, output)
    _check(fit, [(checks[name], timing["seconds"], timing["spread"]) for name, timing in timed.items()])
    say(f"Written: {output}")


def write_script(output: Output = Path("measure_device.pyz")) -> None:
    """Write a script that measures a board or phone on which edgefl is not installed.

    The script is one file (a zip archive that Python can run) and needs only Python 3.9 or later and PyTorch. Read its
    output with `edgefl profile import`.
    """
    from edgefl.profiling.archive import write_archive

    write_archive(output)
    say(f"Written: {output}. On the device: python {output.name} -o measured.json")


def import_profile(  # noqa: PLR0917  (the command's options)
    file: Annotated[
        Path,
        typer.Argument(parser=user_path, metavar="FILE", help="The script's output, or a CSV table of step times."),
    ],
    output: Output,
    name: Annotated[
        str | None, typer.Option(help="The name of the profile in scenarios.", show_default="the output's name")
    ] = None,
    kind: Annotated[
        Literal["sbc", "jetson", "phone", "laptop", "pc", "microcontroller"], typer.Option(help="The kind of device.")
    ] = "sbc",
    idle_watts: IdleWatts = None,
    compute_watts: ComputeWatts = None,
    like: Like = None,
) -> None:
    """Make a device profile from a measurement taken on another machine.

    A JSON file written by the script gives the roofline. A CSV file with the columns model, method, batch and
    milliseconds gives measured times of single steps, in addition to the roofline of the profile --like.
    """
    called = name or output.stem
    if file.suffix.lower() == ".csv":
        if like is None:
            raise UserError("a table of step times also needs a profile: --like NAME", file=str(file))
        from edgefl.fleet import load_profile
        from edgefl.profiling.step_times import read_step_times, with_step_times

        times = read_step_times(file)
        data = with_step_times(load_profile(like), times, called, f"measured step times, {file.name}")
        for key, watts in (("idle", idle_watts), ("compute", compute_watts)):
            data["power"][key] = data["power"][key] if watts is None else watts
        _save(data, output)
        say(f"{len(times)} times of {len({time.signature for time in times})} steps.")
    else:
        from edgefl.profiling.measurement import read_measurement

        _write(read_measurement(file), _rest(called, like, idle_watts, compute_watts, kind), output)
    say(f"Written: {output}")


def _rest(
    name: str, like: str | None, idle_watts: float | None, compute_watts: float | None, kind: str = "pc"
) -> Unmeasured:
    from edgefl.fleet import load_profile
    from edgefl.profiling.measured_profile import Unmeasured

    profile = None if like is None else load_profile(like)
    return Unmeasured(name, kind, idle_watts=idle_watts, compute_watts=compute_watts, like=profile)


def _write(measurement: Measurement, rest: Unmeasured, output: Path) -> Fit:
    from edgefl.profiling.measured_profile import fit_of, profile_data

    fit = fit_of(measurement)
    _save(profile_data(measurement, fit, rest), output)
    rates = fit.rates
    say(
        f"{len(measurement.cases)} cases; mean error of the fit on whole steps: {fit.misfit:.0%}.\n"
        f"{rates.flops_per_second / 1e9:.3g} GFLOP/s, {rates.bytes_per_second / 1e9:.3g} GB/s, "
        f"{rates.operator_overhead * 1e6:.3g} us an operator, {rates.step_overhead * 1e3:.3g} ms a step; "
        f"{len(rates.kinds)} kinds of operators have separate rates."
    )
    return fit


def _check(fit: Fit, steps: list[tuple[Any, float, float]]) -> None:
    if not steps:
        say("No time was left for the steps that check the fit; increase --seconds.", err=True)
        return
    say("Steps of model families and methods that were not used in the fit:")
    misses = []
    for step, seconds, spread in steps:
        predicted = fit.rates.seconds(step.operators())
        misses.append(predicted / seconds - 1)
        busy = ", disturbed" if spread > 1.3 else ""
        say(f"  {step}: {1e3 * seconds:.4g} ms, predicted {1e3 * predicted:.4g} ms ({misses[-1]:+.0%}{busy})")
    say(f"Mean error: {sum(map(abs, misses)) / len(misses):.0%}.")


def _save(profile: dict[str, Any], output: Path) -> None:
    from edgefl.cli.profile_text import profile_yaml, tidy
    from edgefl.fleet import DeviceProfile
    from edgefl.validation import validated

    validated(DeviceProfile, profile)
    write_output(output, profile_yaml(tidy(profile)))
