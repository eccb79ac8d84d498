"""``edgefl profile check``: predicted and measured step times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.cli.arguments import Json, new_figure_file
from edgefl.cli.printing import quiet, say, say_json
from edgefl.files import user_path

if TYPE_CHECKING:
    from edgefl.profiling.step_table import StepTable
    from edgefl.profiling.table_profile import Compared


def check_profile(
    profile: Annotated[str, typer.Argument(help="A name from `edgefl profile list`, or the path of a profile file.")],
    table: Annotated[
        Path, typer.Argument(parser=user_path, metavar="TABLE", help="A CSV table of step times; see `profile fit`.")
    ],
    picture: Annotated[
        Path | None,
        new_figure_file("Draw predicted over measured seconds into this file (PNG, SVG or PDF).", "--output", "-o"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare the seconds that a profile predicts for training steps with measured ones."""
    from edgefl.fleet import load_profile
    from edgefl.profiling.step_table import read_step_table
    from edgefl.profiling.table_profile import as_dict, compare

    device = load_profile(profile)
    with quiet(as_json):
        found = read_step_table(table)
    compared = compare(device, found)
    if picture is not None:
        from edgefl.report.command_figures import predicted_figure, write_predicted

        points = [(each.time.family, each.time.part, each.time.seconds, each.predicted) for each in compared]
        write_predicted(predicted_figure(f"{device.name}: {table.name}", points), picture)
    if as_json:
        say_json({"profile": device.name, **as_dict(compared, found)})
        return
    say_left_out(found)
    print_steps(compared)
    print_errors(compared)
    own = sum(device.compute.measured(each.time.signature) is not None for each in compared)
    if own:
        say(f"{own} of these steps are in the profile's measured steps, so their errors confirm nothing.")


def say_left_out(table: StepTable) -> None:
    """Print the columns that are not read, and the models whose steps cannot be counted."""
    if table.ignored:
        say(f"Ignored columns: {', '.join(table.ignored)}", err=True)
    for model, why in table.left_out.items():
        say(f"Left out: {model}: {why}", err=True)


def print_steps(compared: Sequence[Compared]) -> None:
    """Print a row for each measured time."""
    from edgefl.cli.console import print_table

    rows = [
        [
            each.time.text,
            f"{each.time.seconds:.4g}",
            f"{each.predicted:.4g}",
            f"{each.error:+.0%}",
        ]
        for each in compared
    ]
    print_table(["step", "s measured", "s predicted", "error"], rows, words=(0,))


def print_errors(compared: Sequence[Compared]) -> None:
    """Print the errors of each family of models, of each part, and of all."""
    from edgefl.cli.console import print_table
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
            f"{errors.mean_absolute:.1%}",
            f"{errors.median_absolute:.1%}",
            f"{errors.mean:+.1%}",
        ]
        for name, errors in named.items()
    ]
    print_table(
        ["family", "times", "mean |error|", "median |error|", "mean error"],
        rows,
        notes=["error: predicted over measured seconds, minus 1."],
        words=(0,),
    )
