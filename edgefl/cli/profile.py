"""``edgefl profile``: list, show, check, measure and fit device profiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefl.cli.arguments import Json
from edgefl.cli.printing import say, say_json
from edgefl.cli.profile_calibrate import calibrate_profile
from edgefl.cli.profile_check import check_profile
from edgefl.cli.profile_measure import derive_profile, fit_profile, measure_profile, write_script
from edgefl.files import user_path

if TYPE_CHECKING:
    from edgefl.fleet import DeviceProfile

app = typer.Typer(help="List, show, check, measure and fit device profiles.", no_args_is_help=True)

app.command("measure")(measure_profile)
app.command("script")(write_script)
app.command("calibrate")(calibrate_profile)
app.command("fit")(fit_profile)
app.command("check")(check_profile)
app.command("derive")(derive_profile)


@app.command("list")
def list_profiles(as_json: Json = False) -> None:
    """List the shipped and plugged-in device profiles."""
    from edgefl.fleet import all_profiles, value

    profiles = all_profiles()
    if as_json:
        say_json([_summary(profile) for profile in profiles])
        return
    from edgefl.cli.console import print_table

    rows = []
    for profile in profiles:
        numbers = (
            value(profile.compute.fp32_achievable) / 1e9,
            value(profile.compute.memory_bandwidth) / 1e9,
            profile.memory.total / 2**30,
            value(profile.power.idle),
            value(profile.power.compute),
        )
        evidence = str(profile.evidence("compute"))
        rows.append([profile.name, profile.kind, *(f"{number:.4g}" for number in numbers), evidence])
    print_table(
        ["name", "kind", "GFLOP/s", "GB/s", "GiB", "W idle", "W training", "evidence"],
        rows,
        notes=[
            "GFLOP/s: fp32, achievable in training. W: the whole device.",
            "evidence: what confirms the predicted seconds of a step, and their mean error.",
        ],
        words=(0, 1, 7),
    )


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A name from `edgefl profile list`, or the path of a profile file.")],
    as_json: Json = False,
) -> None:
    """Show a device profile in the form of a profile file; JSON is in base units."""
    from edgefl.cli.profile_text import profile_yaml, tidy, with_units
    from edgefl.fleet import load_profile

    profile = load_profile(name)
    data = profile.model_dump(mode="json", exclude_none=True)
    if as_json:
        say_json(tidy(data))
    else:
        say(profile_yaml(with_units(profile, data)).rstrip())


@app.command()
def validate(
    file: Annotated[Path, typer.Argument(parser=user_path, metavar="FILE", help="The profile file to check.")],
) -> None:
    """Check a profile file: print what is wrong (exit code 2), or `ok` and a summary."""
    from edgefl.fleet import read_profile, value

    profile = read_profile(file)
    compute, power = profile.compute, profile.power
    say(f"{file}: ok")
    say(
        f"{profile.name} ({profile.kind}): {value(compute.fp32_achievable) / 1e9:.3g} GFLOP/s, "
        f"{value(compute.memory_bandwidth) / 1e9:.3g} GB/s, {profile.memory.total / 2**30:.3g} GiB, "
        f"{value(power.idle):.3g} W idle, {value(power.compute):.3g} W training, "
        f"{'verified' if profile.provenance.verified else 'not verified'}; step times {profile.evidence('compute')}"
    )


def _summary(profile: DeviceProfile) -> dict[str, Any]:
    from edgefl.fleet import value

    return {
        "name": profile.name,
        "kind": profile.kind,
        "flops_per_second": value(profile.compute.fp32_achievable),
        "bytes_per_second": value(profile.compute.memory_bandwidth),
        "memory_bytes": profile.memory.total,
        "idle_watts": value(profile.power.idle),
        "compute_watts": value(profile.power.compute),
        "verified": profile.provenance.verified,
        "evidence": profile.evidence("compute").model_dump(mode="json", exclude_none=True),
    }
