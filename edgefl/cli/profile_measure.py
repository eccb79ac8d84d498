"""``edgefl profile measure``, ``script``, ``fit``, ``derive``, ``guess``: profiles from measured steps or others."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from edgefl.cli.arguments import argument, option
from edgefl.cli.printing import say
from edgefl.cli.profile import Output, app, now_and_then, print_errors, save_profile, say_left_out, warn_of_seconds
from edgefl.errors import UserError, locating
from edgefl.files import read_json, user_path

if TYPE_CHECKING:
    from edgefl.fleet import DeviceProfile
    from edgefl.profiling.measured_profile import Checked, Fit, Unmeasured
    from edgefl.profiling.measurement import Measurement

IdleWatts = Annotated[float | None, option(..., "Watts of the idle device.", "--idle-watts", min=0, unset="estimated")]
ComputeWatts = Annotated[
    float | None, option(..., "Watts of the device while it trains.", "--compute-watts", min=0, unset="estimated")
]
Like = Annotated[
    str | None,
    option(
        ...,
        "A profile to take kind, power and battery from; with a table of step times, memory too.",
        unset="estimates for a PC",
    ),
]


@app.command("measure")
def measure_profile(  # noqa: PLR0917  (the command's options)
    output: Output,
    name: str = option("this-machine", "The name of the profile in scenarios."),
    threads: int = option(0, "Threads for training; 0: PyTorch's default.", min=0),
    seconds: float = option(120.0, "Approximate duration of the measurement.", min=0.05, max=86400),
    cpu_quota: float | None = option(
        None, "Measure under this part of one processor, which stands for a device.", min=0.01, max=1
    ),
    data: str | None = option(
        None,
        "Measure too how fast one core reads a scenario's samples, or those of the DataLoader that a function returns.",
        "--input",
        metavar="SCENARIO|FILE.py:NAME",
    ),
    idle_watts: IdleWatts = None,
    compute_watts: ComputeWatts = None,
    like: Like = None,
) -> None:
    """Measure this machine with real training steps, and write a device profile.

    The roofline of each kind of operator is fitted to chains of layers and whole steps of four networks. Eight steps of
    other model families and methods check it. Power is not measured: pass it as an option, or accept wide bounds.

    With --cpu-quota one thread trains in a control group (cgroup) with that quota. `edgefl emulate --compute real`
    trains under the same quota.
    """
    if cpu_quota is not None and threads > 1:
        raise UserError(f"expected 1 thread with --cpu-quota, found {threads}", field="--threads")
    rest = _rest(name, like, idle_watts, compute_watts)
    if threads > (processors := os.cpu_count() or 1):
        message = f"expected at most the {processors} processors of this machine, found {threads}"
        raise UserError(message, field="--threads")
    from edgefl.profiling import measurement, reading
    from edgefl.profiling.measure_device import main
    from edgefl.profiling.measured_profile import Checked
    from edgefl.report.quantities import quantity

    loader = None if data is None else reading.loader_of(data)
    checks = {str(step): step for step in measurement.HELD_OUT}
    # One list, so that steps that check the fit and steps that are fitted are measured in turn, under equal conditions.
    wanted = {**{name: step.case() for name, step in checks.items()}, **main.cases()}
    if cpu_quota is None:
        found = main.measurement(seconds, threads, say, wanted)
    else:
        found = measurement.measurement_under_quota(cpu_quota, seconds, say, wanted)
    timed = {name: found["cases"].pop(name) for name in checks if name in found["cases"]}
    found["left_out"] = {name: why for name, why in found["left_out"].items() if name not in checks}
    steps = [Checked(name, checks[name].operators(), each["seconds"], each["spread"]) for name, each in timed.items()]
    profile = _write(measurement.measurement_of(found), rest, output, steps, cpu_quota=cpu_quota)
    say(f"Written: {output}")
    if loader is not None:
        each = reading.reading_seconds(loader, seconds / 20) * (1 if cpu_quota is None else 1 / cpu_quota)
        say(
            f"Reading a sample takes {quantity(each, 'seconds')} on one core. In a scenario:\n"
            f"training: {{local: {{input: {{seconds: {1e6 * each:.3g} us, core: {profile.core_speed:.3g}}}}}}}"
        )


@app.command("script")
def write_script(output: Output = Path("measure_device.pyz")) -> None:
    """Write a script that measures a board or phone on which edgefl is not installed.

    The script is one file (a zip archive that Python can run) and needs only Python 3.9 or later and PyTorch. Read its
    output with `edgefl profile fit`.
    """
    from edgefl.profiling.measurement import write_archive

    write_archive(output)
    say(f"Written: {output}. On the device: python {output.name} -o measured.json")


@app.command("fit")
def fit_profile(  # noqa: PLR0917  (the command's options)
    output: Output,
    file: Path = argument(..., "A CSV table of step times, or the script's output.", parser=user_path, metavar="FILE"),
    name: str | None = option(None, "The name of the profile in scenarios.", unset="the output's name"),
    idle_watts: IdleWatts = None,
    compute_watts: ComputeWatts = None,
    like: Like = None,
    framework: str | None = option(
        None, "What executed the steps of the table, such as 'PyTorch 2.4'.", unset="not stated"
    ),
    steps: bool = option(
        False, "Keep the rates of --like, and add the table's times as single measured steps.", "--steps"
    ),
) -> None:
    """Fit a device profile to measured times: a table of step times, or the file of the measuring script.

    A CSV table names models (columns model or timm_name, torchvision_name, python), batch and seconds. Rates by
    family of operators are fitted to it, and the families of models are left out in turn to measure the error.
    """
    rest = _rest(name or output.stem, like, idle_watts, compute_watts, "sbc")
    from edgefl.profiling.measurement import is_measurement, measurement_of

    if is_measurement(file):
        if steps:
            raise UserError("--steps needs a CSV table of step times", file=str(file))
        if framework is not None:
            raise UserError("--framework needs a CSV table of step times; this file states it", file=str(file))
        _write(measurement_of(read_json(file), file=str(file)), rest, output)
    else:
        _fit_table(file, rest, framework or "not stated", steps, output)
    say(f"Written: {output}")


def _fit_table(file: Path, rest: Unmeasured, framework: str, steps: bool, output: Path) -> None:
    from statistics import fmean

    from edgefl.profiling import table_profile
    from edgefl.profiling.measured_profile import unmeasured_device
    from edgefl.profiling.step_table import read_step_table

    if steps and rest.like is None:
        raise UserError("--steps also needs a profile: --like NAME", file=str(file))
    base = unmeasured_device(rest)
    table = read_step_table(file, base.backend, progress=now_and_then())
    times = table.times
    say_left_out(table)
    for each in times:
        usual, reading = each.on(base), each.waiting(base, each.seconds)
        if warn_of_seconds(f"{file}: line {each.line}", each.seconds, usual, reading, far=30 if rest.like else 300):
            break
    facts = {"name": rest.name, "source": f"measured step times, {file.name}", "framework": framework}
    if steps:
        save_profile(table_profile.with_step_times(base, times, **facts), output)
        say(f"{len(times)} times of {len({time.signature for time in times})} steps.")
        return
    if len(times) < table_profile.FEW and rest.like is not None:
        data, held = table_profile.scaled_to(times, base, **facts)
        result = f"a few figures of {base.name} were scaled to them."
        heading = "Each time predicted from the others:"
        unknown = "Too few to predict one from the others: the bounds are those of other boards with as few."
    else:
        rates, held = table_profile.fitted_rates(times, base), table_profile.held_out(times, base)
        data = table_profile.fitted_profile(rates, held, base, count=len(times), **facts)
        alone = [time.without_waiting(base) for time in times]
        misfit = fmean(abs(rates.seconds(time.operators) / time.seconds - 1) for time in alone)
        result = f"mean error of the fit on them: {misfit:.1%}."
        heading = "Each family predicted by a fit to the others:"
        unknown = "All times are of one family, or nearly: how well the fit predicts other models is not known."
    if rest.like is not None:
        copied = f"Memory and watts that no option gives are copied from {base.name}."
        data["description"] = f"Speed fitted to {len(times)} times of steps. {copied}"
        result += f" {copied}"
    save_profile(data, output)
    say(f"{len(times)} times; {result}")
    if not held:
        say(unknown)
        return
    say(heading)
    print_errors(held)
    if rest.like is not None and table_profile.Errors.of(held).mean_absolute > 1:
        say(f"Another software stack? {base.name} is of {base.software}; other profiles name theirs (--like).")


def _rest(
    name: str, like: str | None, idle_watts: float | None, compute_watts: float | None, kind: str = "pc"
) -> Unmeasured:
    from edgefl.fleet import load_profile
    from edgefl.fleet.profile import NAME
    from edgefl.profiling.measured_profile import Unmeasured

    profile = None if like is None else load_profile(like)
    if not re.fullmatch(NAME, name):
        raise UserError(
            f"expected a name of letters, digits, '.', '_' and '-', found '{name}' (by default that of the file to "
            "write)",
            field="--name",
        )
    return Unmeasured(name, kind, idle_watts=idle_watts, compute_watts=compute_watts, like=profile)


def _write(
    measurement: Measurement,
    rest: Unmeasured,
    output: Path,
    checked: Sequence[Checked] | None = None,
    *,
    cpu_quota: float | None = None,
) -> DeviceProfile:
    """Write the profile that fits a measurement, and print how good it is.

    ``checked`` are timed steps that check the fit, ``None`` if none was planned.
    """
    from edgefl.profiling.measured_profile import fit_of, profile_data, warning
    from edgefl.report.quantities import quantity

    fit = fit_of(measurement, checked or ())
    profile = save_profile(profile_data(measurement, fit, rest, cpu_quota=cpu_quota), output)
    rates, count = fit.rates, len(measurement.cases)
    operator, step = (quantity(each, "seconds") for each in (rates.operator_overhead, rates.step_overhead))
    check = f", and {len(checked)} that check the fit" if checked else ""
    say(
        f"{count} cases that are fitted{check}; mean error of the fit on its whole steps: {fit.misfit:.0%}.\n"
        f"{rates.flops_per_second / 1e9:.3g} GFLOP/s, {rates.bytes_per_second / 1e9:.3g} GB/s, "
        f"{operator} an operator, {step} a step; {len(rates.kinds)} kinds of operators have separate rates."
    )
    if checked is not None:
        _print_check(fit, checked)
    spreads = [case.spread for case in measurement.cases.values()] + [each.spread for each in checked or ()]
    if (problem := warning(spreads, fit.error)) is not None:
        say(f"warning: {problem}", err=True)
    return profile


def _print_check(fit: Fit, checked: Sequence[Checked]) -> None:
    if not checked:
        say("No time was left for the steps that check the fit; increase --seconds.", err=True)
        return
    from edgefl.profiling.measured_profile import DISTURBED
    from edgefl.report.quantities import quantity

    say("Steps of model families and methods that were not used in the fit:")
    for each in checked:
        miss = each.error(fit.rates)
        predicted, busy = (1 + miss) * each.seconds, ", disturbed" if each.spread > DISTURBED else ""
        found = f"{quantity(each.seconds, 'seconds')}, predicted {quantity(predicted, 'seconds')}"
        say(f"  {each.name}: {found} ({miss:+.0%}{busy})")
    say(f"Mean error: {fit.check:.0%}.")


@app.command("derive")
def derive_profile(  # noqa: PLR0917  (the command's options)
    output: Output,
    base: str = argument(..., "The profile with measured or fitted rates: a name, or a path."),
    device: str = argument(..., "The profile whose memory, power and peak are kept."),
    products: float = option(..., "FLOP/s of large products relative to the base: Linpack's ratio.", min=1e-6, max=1e6),
    memory: float = option(..., "Memory bandwidth relative to the base.", min=1e-6, max=1e6),
    scalar: float = option(
        ..., "Speed without vector units: ratio of clock x instructions per cycle.", min=1e-6, max=1e6
    ),
    error: float = option(0.5, "Relative error for which bounds are given.", min=0, max=10),
) -> None:
    """Derive the rates of a device from those of a similar one, by three ratios of their speeds."""
    from edgefl.fleet import load_profile
    from edgefl.profiling.derived_profile import Ratios, derived_profile

    known, similar, ratios = load_profile(base), load_profile(device), Ratios(products, scalar, memory)
    try:
        data = derived_profile(known, similar, ratios, error)
    except UserError as failed:
        raise UserError(f"{similar.name} cannot have these ratios: {failed.message}", field=failed.field) from None
    save_profile(data, output)
    say(f"Written: {output}")


@app.command("guess")
def guess_profile(  # noqa: PLR0917  (the command's options)
    output: Output,
    cores: int = option(..., "Its cores.", min=1, max=1024),
    ghz: float = option(..., "The clock of its cores, GHz.", min=0.01, max=20),
    gb_per_second: float = option(..., "The theoretical bandwidth of its memory, GB/s.", min=0.01, max=1e4),
    watts: float = option(..., "Its watts under full load.", min=0.01, max=1e4),
    ram: str | None = option(None, "Its memory, such as '4 GiB'.", unset="1 GiB"),
    base: str = option("raspberry-pi-4", "The board with measured step times whose rates are scaled.", "--from"),
) -> None:
    """Guess the profile of a board from its data sheet, with bounds of a factor of 3, until its steps are measured."""
    from edgefl.fleet import load_profile
    from edgefl.profiling.derived_profile import DataSheet, guessed_profile
    from edgefl.units import parse, without_unit

    if ram is not None and without_unit(ram):
        raise UserError(f"expected a size with a unit, such as '4 GiB', found '{ram}'", file="--ram")
    with locating(file="--ram"):
        memory = None if ram is None else parse(ram, "bytes")
    with locating(file=f"--from {base}"):
        sheet = DataSheet(cores, ghz, gb_per_second)
        data = guessed_profile(load_profile(base), output.stem, sheet, watts, memory)
    save_profile(data, output)
    say(f"Written: {output}. Its seconds are a guess, a factor of 3 either way; `edgefl profile script` measures it.")
