"""``edgefl profile calibrate``: fit a device and a link to the measured rounds of one real client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.cli.arguments import new_folder
from edgefl.cli.printing import say
from edgefl.errors import UserError
from edgefl.files import user_path
from edgefl.record.names import SCENARIO

if TYPE_CHECKING:
    from edgefl.fleet import DeviceProfile
    from edgefl.profiling.calibrated import Predicted
    from edgefl.profiling.calibration import Calibration
    from edgefl.scenario import Scenario

LINK = "measured"
"""The name of the link in the files."""

PROFILE = "profile.yaml"

_REST = """# For the rest of the fleet, add entries with another pace, such as
#   - {profile: ./profile.yaml, share: 0.3, link: measured, pace: 2}      # twice as slow
# or with other profiles and links; shares must sum to 1.
"""


def calibrate_profile(  # noqa: PLR0917  (Typer reads options from the signature)
    log: Annotated[
        Path,
        typer.Argument(
            parser=user_path,
            metavar="LOG",
            help="A CSV file: round, download_seconds, compute_seconds, upload_seconds, bytes_down, bytes_up.",
        ),
    ],
    scenario: Annotated[
        str, typer.Option(metavar="SCENARIO", help="The scenario whose model and local training the client executed.")
    ],
    like: Annotated[str, typer.Option(help="The profile of the most similar device; its speed is scaled.")],
    output: Annotated[Path, new_folder("The folder to write; it must not exist.", "--output", "-o")],
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="The client's method.", show_default="the scenario's first")
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="The client's training samples.", show_default="the median of the scenario's clients"),
    ] = None,
    latency: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="One-way latency of the link, such as '30 ms'.",
            show_default="fitted if the sizes of the transfers differ, else 0",
        ),
    ] = None,
) -> None:
    """Fit a device profile and a link to the measured rounds of one real client.

    Writes profile.yaml, link.yaml and scenario.yaml, in which all clients have this device and link.
    """
    from edgefl.files import write_file, writing_folder
    from edgefl.fleet import load_profile
    from edgefl.profiling.calibrated import predicted
    from edgefl.profiling.calibration import calibrate, read_client_log
    from edgefl.scenario import load_scenario
    from edgefl.units import parse

    if output.exists():
        raise UserError("expected a folder that does not exist yet", file=f"--output {output}")
    measured, base, checked = read_client_log(log), load_profile(like), load_scenario(scenario)
    delay, transport = None, checked.network.transport.build()
    if latency is not None:
        try:
            delay = parse(latency, "seconds") * transport.latency_factor
        except UserError as error:
            raise error.located(file="--latency") from None
        if delay < 0:
            raise UserError(f"expected 0 or more, found '{latency}'", file="--latency")
    elif transport.tcp is not None:
        raise UserError("expected --latency, because with tcp a log does not determine it", file=scenario)
    try:
        training = predicted(checked, method or checked.methods[0].label, base, samples)
    except UserError as error:
        raise error.located(file=scenario) from None
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
    for sentence in _sentences(found, training, base.name, measured.rounds):
        say(sentence)
    say(f"Written: {', '.join(str(output / name) for name in files)}")


def _files(
    scenario: Scenario, base: DeviceProfile, found: Calibration, training: Predicted, *, source: str, rounds: int
) -> dict[str, str]:
    """The text of each file by name."""
    from datetime import datetime

    from edgefl.cli.profile_text import profile_yaml, tidy
    from edgefl.profiling.calibrated import link_data, profile_data, scenario_data
    from edgefl.scenario import dump_yaml

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


def _sentences(found: Calibration, training: Predicted, base: str, rounds: int) -> Iterator[str]:
    pace, varying = found.compute.mean / training.seconds, _varying(found.compute.sigma)
    yield (
        f"{rounds} rounds of {training.label} with {training.samples} samples, {training.steps} steps each: "
        f"{_digits(found.compute.mean)} s of training{varying}, {_digits(pace)} times the seconds of {base}."
    )
    for direction, way in (("down", found.down), ("up", found.up)):
        yield f"{direction}: {_digits(way.bits_per_second / 1e6)} Mbit/s{_varying(way.sigma)}."
    if found.delay_error is not None:
        yield f"Delay before the first byte: {found.delay * 1e3:.3g} ± {found.delay_error * 1e3:.2g} ms, as fitted."
    elif not found.delay:
        yield (
            "Delay before the first byte: assumed 0, because it can be fitted only if the sizes of transfers differ; "
            "--latency gives it."
        )
    parts = (("computations", found.compute), ("downloads", found.down), ("uploads", found.up))
    outliers = [f"{each.outliers} of {rounds} {name}" for name, each in parts if each.outliers]
    if outliers:
        yield f"Left out because they are far from the others: {', '.join(outliers)}."


def _varying(sigma: float) -> str:
    """How much a figure varies from round to round, in words."""
    return f", varying by {_digits(100 * sigma, 2)} % from round to round" if sigma else ""


def _digits(number: float, digits: int = 3) -> str:
    """A number with some digits, without an exponent below a million.

    >>> _digits(0.3972), _digits(2371.4), _digits(184.0, 2)
    ('0.397', '2370', '180')
    """
    return f"{float(f'{number:.{digits}g}'):g}"
