"""``edgefl profile list``, ``show``, ``validate`` and ``check``: what device profiles say, and how good they are."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefl.cli.arguments import Json, argument, new_figure_file, option
from edgefl.cli.printing import print_table, quiet, say, say_json
from edgefl.files import user_path, writing_output
from edgefl.record.paths import new_output_path

if TYPE_CHECKING:
    from pydantic import BaseModel

    from edgefl.fleet import DeviceProfile
    from edgefl.profiling.step_table import StepTable
    from edgefl.profiling.table_profile import Compared

Output = Annotated[
    Path, option(..., "The file to write; it must not exist.", "--output", "-o", parser=new_output_path, metavar="FILE")
]

app = typer.Typer(
    rich_markup_mode=None, help="List, show, check, measure and fit device profiles.", no_args_is_help=True
)


@app.command("list")
def list_profiles(as_json: Json = False) -> None:
    """List the shipped and plugged-in device profiles."""
    from edgefl.fleet import all_profiles
    from edgefl.fleet.profile import UNKNOWN

    profiles = all_profiles()
    if as_json:
        say_json([_summary(profile) for profile in profiles])
        return
    rows = []
    for each in sorted(profiles, key=lambda profile: profile.kind):
        *rates, idle, training = (f"{float(f'{figure:.3g}'):g}" for figure in _figures(each))
        evidence = str(each.evidence("compute")).removesuffix(f", {UNKNOWN}")
        rows.append([each.kind, each.name, *rates, f"{idle}–{training}", evidence, each.software])
    print_table(
        ["kind", "name", "GFLOP/s", "GB/s", "GiB", "W", "evidence", "stack"],
        rows,
        notes=[
            "GFLOP/s: fp32, achievable in training. W: the whole device, idle and in training.",
            f"evidence: what confirms the seconds of a step, and their mean error, else {UNKNOWN}. Other software than "
            "the stack, or depthwise networks without an error, may take up to ten times as long.",
        ],
        words=(0, 1, 6, 7),
    )


@app.command()
def show(
    name: str = argument(..., "A name from `edgefl profile list`, or the path of a profile file."),
    as_json: Json = False,
) -> None:
    """Show a device profile in the form of a profile file; JSON is in base units."""
    from edgefl.fleet import load_profile

    profile = load_profile(name)
    data = profile.model_dump(mode="json", exclude_none=True)
    if as_json:
        say_json(tidy(data))
    else:
        say(profile_yaml(with_units(profile, data)).rstrip())


@app.command()
def validate(file: Path = argument(..., "The profile file to check.", parser=user_path, metavar="FILE")) -> None:
    """Check a profile file: print what is wrong (exit code 2), or `ok` and a summary."""
    from edgefl.fleet import read_profile

    profile = read_profile(file)
    speed, bandwidth, memory, idle, training = (f"{figure:.3g}" for figure in _figures(profile))
    say(f"{file}: ok")
    say(
        f"{profile.name} ({profile.kind}): {speed} GFLOP/s, {bandwidth} GB/s, {memory} GiB, {idle} W idle, "
        f"{training} W training, {'verified' if profile.provenance.verified else 'not verified'}; step times "
        f"{profile.evidence('compute')}"
    )


def _figures(profile: DeviceProfile) -> tuple[float, ...]:
    """GFLOP/s, GB/s, GiB, and watts when idle and in training."""
    data = _summary(profile)
    speeds = data["flops_per_second"] / 1e9, data["bytes_per_second"] / 1e9, data["memory_bytes"] / 2**30
    return (*speeds, data["idle_watts"], data["compute_watts"])


def _summary(profile: DeviceProfile) -> dict[str, Any]:
    from edgefl.fleet import value

    return {
        "name": profile.name,
        "kind": profile.kind,
        "stack": profile.software,
        "flops_per_second": value(profile.compute.fp32_achievable),
        "bytes_per_second": value(profile.compute.memory_bandwidth),
        "memory_bytes": profile.memory.total,
        "idle_watts": value(profile.power.idle),
        "compute_watts": value(profile.power.compute),
        "verified": profile.provenance.verified,
        "evidence": profile.evidence("compute").model_dump(mode="json", exclude_none=True),
    }


@app.command("check")
def check_profile(
    profile: str = argument(..., "A name from `edgefl profile list`, or the path of a profile file."),
    table: Path = argument(..., "A CSV table of step times; see `profile fit`.", parser=user_path, metavar="TABLE"),
    picture: Path | None = new_figure_file(
        "Draw predicted over measured seconds into this file (PNG, SVG or PDF).", "--output", "-o"
    ),
    as_json: Json = False,
) -> None:
    """Compare the seconds that a profile predicts for training steps with measured ones."""
    from edgefl.fleet import load_profile, measured_step
    from edgefl.profiling.step_table import read_step_table
    from edgefl.profiling.table_profile import Compared, as_dict

    device = load_profile(profile)
    with quiet(as_json):
        found = read_step_table(table, device.backend, skip=True, progress=now_and_then(math.inf if as_json else 2))
    compared = [Compared(time, time.on(device)) for time in found.times]
    if picture is not None:
        from edgefl.report.command_figures import predicted_figure
        from edgefl.report.figure_file import write_figure

        points = [(each.time.family, each.time.part, each.time.seconds, each.predicted) for each in compared]
        write_figure(predicted_figure(f"{device.name}: {table.name}", points), picture)
    if as_json:
        say_json({"profile": device.name, **as_dict(compared, found)})
        return
    say_left_out(found)
    rows = [
        [each.time.text, f"{each.time.seconds:.4g}", f"{each.predicted:.4g}", f"{each.error:+.0%}"] for each in compared
    ]
    print_table(["step", "s measured", "s predicted", "error"], rows)
    print_errors(compared)
    own = sum(measured_step(device, each.time.operators) is not None for each in compared)
    if own:
        say(f"{own} of these steps are, or are similar to, the profile's measured steps; their errors confirm nothing.")


def now_and_then(seconds: float = 2.0) -> Callable[[str], None]:
    """A function that prints which step is counted, on standard error and at most once in so many seconds."""
    said = monotonic()

    def progress(text: str) -> None:
        nonlocal said
        if monotonic() - said > seconds:
            say(f"Counting step {text}", err=True)
            said = monotonic()

    return progress


def say_left_out(table: StepTable) -> None:
    """Print the columns that are not read, and the models whose steps cannot be counted."""
    if table.ignored:
        say(f"Ignored columns: {', '.join(table.ignored)}", err=True)
    for model, why in table.left_out.items():
        say(f"Left out: {model}: {why}", err=True)


def print_errors(compared: Sequence[Compared]) -> None:
    """Print the errors of each family of models, of each part, and of all."""
    from edgefl.fleet.profile import error_words
    from edgefl.profiling.table_profile import Errors, errors_by

    parts = errors_by("part", compared)
    named = {
        **errors_by("family", compared),
        **({f"trained: {name}": errors for name, errors in parts.items()} if len(parts) > 1 else {}),
        "all": Errors.of(compared),
    }
    rows = [
        [
            name,
            str(errors.number),
            *(f"{size:.1%}" if size < 1 else error_words(size) for size in errors[:2]),
            f"{errors.mean:+.1%}" if errors.mean < 1 else error_words(errors.mean),
        ]
        for name, errors in named.items()
    ]
    print_table(
        ["family", "times", "mean |error|", "median |error|", "mean error"],
        rows,
        notes=["error: predicted over measured seconds, minus 1; means and medians are of their logarithms."],
        words=(0,),
    )


def warn_of_seconds(place: str, seconds: float, usual: float, reading: float, *, far: float = 30) -> bool:
    """Warn of measured seconds that are ``far`` times the usual ones, or the reverse, or fewer than reading takes."""
    if reading < seconds and 1 / far < seconds / usual < far:
        return False
    unit = "milliseconds" if seconds > usual else "seconds in a column of milliseconds"
    hint = f"are they {unit}?" if reading < seconds else f"with input.seconds, reading alone takes {reading:.3g} s"
    say(f"warning: {place}: {seconds:.3g} s, a similar device takes {usual:.3g} s; {hint}", err=True)
    return True


def profile_yaml(data: Mapping[str, Any]) -> str:
    """The data of a profile as YAML, with the bounds of a figure on one line."""
    from ruamel.yaml import YAML

    text = io.StringIO()
    yaml = YAML(typ="rt", pure=True)
    yaml.width = 120
    yaml.dump(_bounds_in_a_line(data), text)
    return text.getvalue()


def save_profile(data: dict[str, Any], output: Path) -> DeviceProfile:
    """Write a profile's data to a new file; UserError if they are not those of a device."""
    from edgefl.fleet import DeviceProfile
    from edgefl.validation import validated

    profile = validated(DeviceProfile, data)
    with writing_output(output) as file:
        file.write(profile_yaml(tidy(data)).encode())
    return profile


def with_units(part: BaseModel, data: Mapping[str, Any]) -> dict[str, Any]:
    """The plain data of a profile, or of a part of it, with each quantity as text with its unit."""
    from edgefl.units import dimension_of

    fields = type(part).model_fields
    found = {}
    for name, inner in data.items():
        types = (fields[name].annotation, *fields[name].metadata)
        dimension = next((each for each in map(dimension_of, types) if each), None)
        # An estimate's bounds are in the unit of its nominal figure.
        found[name] = _spelt(getattr(part, name), inner, dimension, getattr(part, "nominal", None))
    return found


def _spelt(value: Any, data: Any, dimension: str | None, nominal: float | None = None) -> Any:
    from edgefl.units import spelt

    if isinstance(value, float) and dimension is not None:
        return spelt(value, dimension, like=nominal)
    if hasattr(type(value), "model_fields"):
        return with_units(value, data)
    if isinstance(value, Mapping):
        return {key: _spelt(value[key], inner, dimension) for key, inner in data.items()}
    if isinstance(value, tuple):
        return [_spelt(each, inner, dimension) for each, inner in zip(value, data, strict=True)]
    return tidy(data)


def tidy(data: Any) -> Any:
    """Round numbers to twelve digits: 25 us are 2.5e-05 s, not 2.4999999999999998e-05."""
    if isinstance(data, dict):
        return {key: tidy(inner) for key, inner in data.items()}
    if isinstance(data, list):
        return [tidy(inner) for inner in data]
    return float(f"{data:.12g}") if isinstance(data, float) else data


def _bounds_in_a_line(data: Any) -> Any:
    """The same data, with low, nominal and high of a figure on one line."""
    from ruamel.yaml.comments import CommentedMap

    if isinstance(data, list):
        return [_bounds_in_a_line(each) for each in data]
    if not isinstance(data, dict):
        return data
    made = CommentedMap({key: _bounds_in_a_line(each) for key, each in data.items()})
    if set(data) == {"low", "nominal", "high"}:
        made.fa.set_flow_style()
    return made
