"""``edgefl data``: who holds what in a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from edgefl.cli.arguments import Changes, Json, Scenario, new_figure_file, option
from edgefl.cli.printing import print_table, say, say_json

if TYPE_CHECKING:
    from edgefl.data.distribution import DataDistribution

app = typer.Typer(
    rich_markup_mode=None, help="Show how a scenario's data are divided among the clients.", no_args_is_help=True
)

_SHOWN = 12
"""Clients in the table."""
_LEVELS = "·▁▂▃▄▅▆▇█"
_MOST_BARS = 47
"""Categories for which the table shows the counts of each client."""


@app.command()
def show(
    scenario: Scenario,
    changes: Changes = None,
    seed: int | None = option(None, "Seed of the partition.", min=0, unset="the scenario's first"),
    picture: Path | None = new_figure_file("Draw who holds what into this file (PNG, SVG or PDF).", "--output", "-o"),
    as_json: Json = False,
) -> None:
    """Show who holds what: samples and classes of the clients, and how far they differ from the whole.

    The data are read and divided as a run does; nothing is trained.
    """
    from edgefl.data.distribution import data_distribution
    from edgefl.data.federated import load_federated
    from edgefl.scenario import load_scenario
    from edgefl.scenario.components import errors_at
    from edgefl.scenario.overrides import blaming_changes

    chosen = load_scenario(scenario, changes or ())
    number = chosen.seeds[0] if seed is None else seed
    with blaming_changes(changes or (), scenario), errors_at("data"):
        found = data_distribution(load_federated(chosen.data, number, split=chosen.evaluation.split))
    classes = chosen.data.class_names() if found.what == "classes" else []
    clients = chosen.data.client_names() if chosen.data.partition.kind == "natural" else []
    columns = chosen.data.column_facts()
    if picture is not None:
        from edgefl.report.command_figures import holdings_figure
        from edgefl.report.figure_file import write_figure

        title = f"{chosen.name}: {found.sizes.sum():,} training samples of {len(found.sizes):,} clients, seed {number}"
        drawn = holdings_figure(
            title,
            found.what,
            found.sizes,
            counts=found.counts,
            distances=found.distances,
            means=found.means,
            names=classes,
        )
        write_figure(drawn, picture)
    if as_json:
        names = {"class_names": classes or None, "client_names": clients[: len(found.sizes)] or None}
        facts = [dict(zip(("column", "use", "values"), each, strict=True)) for each in columns]
        say_json({"scenario": chosen.name, "seed": number, **names, "columns": facts or None, **_as_data(found)})
        return
    if columns:
        print_table(["column", "use", "values"], columns, title=f"{chosen.name}, {chosen.data.name}", words=(0, 1, 2))
        say("")
    if classes and found.counts is not None and len(classes) <= _MOST_BARS:
        rows = [[name, f"{count:,}"] for name, count in zip(classes, found.counts.sum(axis=0), strict=False)]
        print_table(["class", "training samples"], rows)
        say("")
    _print(f"{chosen.name}, {chosen.data.name}, seed {number}", found, classes, clients)
    if picture is not None:
        say(f"Picture  {picture}")


def _as_data(found: DataDistribution) -> dict[str, Any]:
    columns = {
        "samples": found.sizes,
        "test_samples": found.test_sizes,
        "counts": found.counts,
        "distance": found.distances,
        "target_mean": found.means,
    }
    known = {name: values.tolist() for name, values in columns.items() if values is not None}
    return {
        "targets": found.what,
        "clients": len(found.sizes),
        "unused": found.unused,
        "variance_between_clients": found.between,
        "summary": found.summary(),
        "each": [
            {"client": client, **{name: _or_none(values[client]) for name, values in known.items()}}
            for client in range(len(found.sizes))
        ],
    }


def _or_none(value: Any) -> Any:
    return None if value != value else value  # noqa: PLR0124


def _print(title: str, found: DataDistribution, classes: list[str], clients: list[str]) -> None:
    names = {
        "samples": "training samples of a client",
        "test_samples": "test samples of a client",
        found.what: f"{found.what} of a client",
        "distance": "distance from the whole",
        "target_mean": "mean target of a client",
    }
    rows = [
        [names[name], *(_figure(spread.get(each)) for each in ("smallest", "median", "largest", "mean"))]
        for name, spread in found.summary().items()
    ]
    notes = [f"{found.sizes.sum():,} training samples, {len(found.sizes):,} clients; {found.unused:,} are not used."]
    if found.distances is not None:
        notes.append(
            f"Distance: half the sum of the differences between a client's shares of the {found.what} and those of all "
            "clients; 0: equal, 1: nothing in common."
        )
    if found.between is not None:
        notes.append(f"{100 * found.between:.1f} % of the targets' variance is between clients.")
    if classes:
        notes.append(f"Classes, as counts below are in order: {', '.join(classes)}.")
    print_table(["", "smallest", "median", "largest", "mean"], rows, title=title, notes=notes)
    _print_clients(found, clients)


def _print_clients(found: DataDistribution, names: list[str]) -> None:
    """A row for each client; if there are many, for some of them from the smallest to the largest."""
    import numpy as np

    clients = len(found.sizes)
    shown = np.arange(clients)
    notes = []
    if clients > _SHOWN:
        order = np.argsort(found.sizes, kind="stable")
        shown = order[np.linspace(0, clients - 1, _SHOWN).round().astype(int)]
        notes = [f"{_SHOWN} of {clients:,} clients, from the one with the fewest samples to the one with the most."]
    columns: dict[str, Any] = {"samples": found.sizes, "test": found.test_sizes, found.what: found.held}
    columns |= {"distance": found.distances, "mean target": found.means}
    known = {name: values for name, values in columns.items() if values is not None}
    drawn = found.counts if found.counts is not None and found.counts.shape[1] <= _MOST_BARS else None
    heads = ["client", *known] + ["counts"] * (drawn is not None)
    rows = [
        [f"{client} {names[client]}" if names else str(client), *(_figure(values[client]) for values in known.values())]
        + ([] if drawn is None else [_bars(drawn[client].tolist())])
        for client in shown.tolist()
    ]
    print_table(heads, rows, notes=notes, words=(0, len(heads) - 1) if drawn is not None else (0,))


def _figure(value: float | None) -> str:
    if value is None or value != value:  # noqa: PLR0124  (NaN)
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3g}"


def _bars(counts: list[int]) -> str:
    """A bar for each count, relative to the largest; a small count that is not 0 can be seen.

    >>> _bars([0, 1, 50, 100])
    '·▁▄█'
    """
    most = max(counts) or 1
    return "".join(_LEVELS[-(-count * (len(_LEVELS) - 1) // most)] for count in counts)
