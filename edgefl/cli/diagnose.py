"""``edgefl diagnose``: measure the curvature of the loss at a run's models, and how much its clients differ."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.cli.arguments import Json, Methods, Run, Trust, new_figure_file, option
from edgefl.cli.printing import print_table, quiet, say_json

if TYPE_CHECKING:
    from edgefl.diagnosis.diagnose import Diagnosis


def diagnose(  # noqa: PLR0917  (the options of the command)
    run: Run,
    method: Methods = None,
    seed: list[int] | None = option(None, "Only this seed; repeatable.", metavar="N"),
    batches: int = option(10, "Batches of 64 training images on which the loss is computed.", min=1),
    landscape: Path | None = new_figure_file("Plot the loss on the plane of the two top eigenvectors."),
    device: str = option("auto", "auto, cpu or cuda."),
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Measure the curvature of the loss at a run's final models (FedAlign, Table 1).

    Prints the Hessian's largest eigenvalue and trace. If the run kept local models (keep_models: clients), also their
    means over clients, and H_N and H_D, the distance and the cosine between clients' Hessian diagonals.
    """
    from edgefl.diagnosis.diagnose import diagnose as diagnoses_of

    plane = landscape is not None
    with quiet(as_json):
        each = diagnoses_of(run, methods=method, seeds=seed, batches=batches, device=device, plane=plane, trust=trust)
        found = list(each)
    if landscape is not None:
        from edgefl.report.command_figures import landscape_figure
        from edgefl.report.figure_file import write_figure

        several = len({each.seed for each in found}) > 1
        panels = [
            (f"{each.label}, seed {each.seed}" if several else each.label, drawn.steps, drawn.losses, drawn.eigenvalues)
            for each in found
            if (drawn := each.landscape) is not None
        ]
        write_figure(landscape_figure(panels), landscape)
    if as_json:
        say_json([each.as_data() for each in found])
    else:
        _print(found)


def _print(found: list[Diagnosis]) -> None:
    compared = any(each.clients for each in found)
    heads = ["method", "seed", "λ_max", "trace"]
    if compared:
        heads += ["clients", "their λ_max", "their trace", "H_N", "H_D", "H_N, entries", "H_D, entries"]
    note = (
        "H_N and H_D use one number for each parameter tensor, as the authors' code does; the entries columns use one "
        "for each parameter."
    )
    rows = [[each.label, str(each.seed), *_cells(each, compared=compared)] for each in found]
    print_table(heads, rows, notes=[note] * compared)


def _cells(each: Diagnosis, *, compared: bool) -> list[str]:
    numbers: list[float | None] = [each.lambda_max, each.trace]
    if compared:
        count = len(each.clients)
        numbers += [
            sum(client[key] for client in each.clients) / count if count else None for key in ("lambda_max", "trace")
        ]
        for reading in (each.by_tensor, each.by_parameter):
            numbers += [None, None] if reading is None else [reading["h_n"], reading["h_d"]]
    cells = ["–" if number is None else f"{number:,.4g}" for number in numbers]
    if compared:
        cells.insert(2, str(len(each.clients)))
    return cells
