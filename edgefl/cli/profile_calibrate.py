"""``edgefl profile calibrate``: a device profile and a link from the measured rounds of one client."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.cli.arguments import argument, option
from edgefl.cli.printing import print_table, say
from edgefl.cli.profile import app, profile_yaml, tidy, warn_of_seconds
from edgefl.errors import UserError, locating
from edgefl.files import user_path
from edgefl.record.names import SCENARIO

if TYPE_CHECKING:
    from edgefl.fleet import DeviceProfile
    from edgefl.profiling.calibration import Calibration, Predicted
    from edgefl.scenario import Scenario

LINK = "measured"
"""The name of the link in the files."""

PROFILE = "profile.yaml"

_REST = """# For the rest of the fleet, add entries with another pace, such as
#   - {profile: ./profile.yaml, share: 0.3, link: measured, pace: 2}      # twice as slow
# or with other profiles and links; shares must sum to 1.
"""


@app.command("calibrate")
def calibrate_profile(  # noqa: PLR0917  (Typer reads options from the signature)
    log: Path = argument(
        ...,
        "A CSV file: round, download_seconds, compute_seconds, upload_seconds, bytes_down, bytes_up.",
        parser=user_path,
        metavar="LOG",
    ),
    scenario: str = option(..., "The scenario whose model and local training the client executed.", metavar="SCENARIO"),
    like: str = option(..., "The profile of the most similar device; its speed is scaled."),
    output: Path = option(
        ..., "The folder to write; it must not exist.", "--output", "-o", parser=user_path, metavar="DIR"
    ),
    method: str | None = option(None, "The client's method.", metavar="NAME", unset="the scenario's first"),
    samples: int | None = option(
        None, "The client's training samples.", min=1, unset="the median of the scenario's clients"
    ),
    latency: str | None = option(None, "One-way latency of the link, such as '30 ms'.", metavar="TIME", unset="0"),
) -> None:
    """Fit a device profile and a link to the measured rounds of one real client.

    Writes profile.yaml, link.yaml and scenario.yaml, in which all clients have this device and link.
    """
    from edgefl.files import write_file, writing_folder
    from edgefl.fleet import load_profile
    from edgefl.profiling.calibration import calibrate, predicted, read_client_log
    from edgefl.scenario import load_scenario
    from edgefl.units import parse, without_unit

    if output.exists():
        raise UserError("expected a folder that does not exist yet", file=f"--output {output}")
    measured, base, checked = read_client_log(log), load_profile(like), load_scenario(scenario)
    delay, transport = 0.0, checked.network.transport.build()
    if latency is not None:
        with locating(file="--latency"):
            delay = parse(latency, "seconds")
        if delay < 0:
            raise UserError(f"expected 0 or more, found '{latency}'", file="--latency")
        if without_unit(latency) and delay >= 1:
            say(f"warning: --latency {latency} is {latency} s; did you mean '{latency} ms'?", err=True)
    elif transport.tcp is not None:
        raise UserError("expected --latency, because with tcp a log does not determine it", file=scenario)
    with locating(file=scenario):
        training = predicted(checked, method or checked.methods[0].label, base, samples)
    try:
        found = calibrate(measured, delay=delay, transport=transport)
        files = _files(checked, base, found, training, source=log.name, rounds=measured.rounds)
        with writing_folder(output) as folder:
            for name, text in files.items():
                write_file(folder / name, text)
            load_scenario(folder / SCENARIO)
    except UserError as error:  # a figure that no device or link can have
        raise UserError(error.message, field=error.field, file=str(log)) from None
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", file=str(output)) from None
    warn_of_seconds(f"{log}: compute_seconds", found.compute.mean, training.seconds, training.reading)
    _warn_of_transfers(f"{log}: down", found.down.bits_per_second, measured.bytes_down, training.bytes_down)
    _warn_of_transfers(f"{log}: up", found.up.bits_per_second, measured.bytes_up, training.bytes_up)
    _print_calibration(found, training, base.name, measured.rounds)
    say(f"Written: {', '.join(str(output / name) for name in files)}")


def _files(
    scenario: Scenario, base: DeviceProfile, found: Calibration, training: Predicted, *, source: str, rounds: int
) -> dict[str, str]:
    from datetime import datetime

    from edgefl.profiling.calibration import link_data, profile_data, scenario_data
    from edgefl.yaml_file import dump_yaml

    name = f"{base.name}-calibrated"
    today = datetime.now().astimezone().date()
    profile = profile_data(base, found, training, name=name, source=source, rounds=rounds, today=today)
    link = link_data(found, scenario.network.transport.build())
    return {
        PROFILE: profile_yaml(tidy(profile)),
        "link.yaml": f"# Fitted to {rounds} measured rounds in {source}; an entry of network.links.\n"
        + dump_yaml({LINK: link}),
        SCENARIO: f"# {scenario.name}, in which every client is like the one measured in {source}.\n{_REST}"
        + dump_yaml(scenario_data(scenario, LINK, link, f"./{PROFILE}")),
    }


def _print_calibration(found: Calibration, training: Predicted, base: str, rounds: int) -> None:
    training_time, down, up = found.compute, found.down, found.up
    rows = [
        ("training", f"{training_time.mean:.3g} s", training_time.sigma, training_time.outliers),
        ("down", f"{down.bits_per_second / 1e6:.3g} Mbit/s", down.sigma, down.outliers),
        ("up", f"{up.bits_per_second / 1e6:.3g} Mbit/s", up.sigma, up.outliers),
    ]
    notes = [
        f"{rounds} rounds of {training.label}: {training.samples} samples, {training.steps} steps each, "
        f"{found.compute.mean / training.seconds:.3g} times the seconds of {base}."
    ]
    if not found.delay:
        notes.append("Delay before the first byte: assumed 0; --latency gives it.")
    cells = [[name, text, f"{100 * sigma:.2g} %", str(outliers)] for name, text, sigma, outliers in rows]
    print_table(["", "mean", "varies by", "outliers left out"], cells, notes=notes)


def _warn_of_transfers(place: str, rate: float, bytes: Iterable[float], usual: int) -> None:
    """Warn of logged bytes that are not near those of the scenario's model, or else of a very low rate."""
    from statistics import median

    from edgefl.report.quantities import quantity

    if usual and not 1 / 3 < (typical := median(bytes)) / usual < 3:
        found, expected = quantity(typical, "bytes"), quantity(usual, "bytes")
        hint = "is it another scenario, or are they not bytes?"
        say(f"warning: {place}: {found} in a round, the scenario's model has {expected}; {hint}", err=True)
    elif rate < 1e6:
        say(f"warning: {place}: {rate / 1e6:.3g} Mbit/s is slow for a link; are the seconds milliseconds?", err=True)
