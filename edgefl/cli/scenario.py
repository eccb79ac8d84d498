"""``edgefl scenario``: list the shipped scenarios, check scenario files, and print their schema for editors."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from edgefl import shipped
from edgefl.cli.arguments import Changes, Json, Scenario, argument, option
from edgefl.cli.printing import print_table, say, say_json
from edgefl.errors import UserError
from edgefl.wording import counted

if TYPE_CHECKING:
    from edgefl.scenario.rehearsal import TraceFigures

app = typer.Typer(
    rich_markup_mode=None,
    help="List the shipped scenarios, check a file, or print the JSON schema.",
    no_args_is_help=True,
)


@app.command("list")
def list_scenarios(
    under: str = argument("", "Only this folder, such as papers/fedbr.", metavar="FOLDER"), as_json: Json = False
) -> None:
    """List the shipped scenarios."""
    prefix = f"{under.strip('/')}/" if under.strip("/") else ""
    found = {name: path for name, path in shipped.files("scenarios").items() if name.startswith(prefix)}
    if not found:
        folders = sorted({name.rpartition("/")[0] for name in shipped.files("scenarios")} - {""})
        raise UserError(f"'{under}' is not a folder of shipped scenarios; expected one of: {', '.join(folders)}")
    here = {name: _purpose(path) for name, path in found.items() if "/" not in name.removeprefix(prefix)}
    below = Counter(name.rpartition("/")[0] for name in found if name not in here)
    if as_json:
        say_json([{"name": name, "purpose": _purpose(path)} for name, path in found.items()])
        return
    rows = list(here.items())
    rows += [(f"{folder}/", f"{count} scenarios: edgefl scenario list {folder}") for folder, count in below.items()]
    print_table(["name", "purpose"], rows, words=range(2))


def _purpose(path: Path) -> str:
    """The first sentence of the comment at the start of a scenario."""
    lines = itertools.takewhile(lambda line: line.startswith("# "), path.read_text(encoding="utf-8").splitlines())
    text = " ".join(line[2:].strip() for line in lines)
    return re.split(r"(?<=[a-z0-9)])[.?](?= [A-Z]|$)", text, maxsplit=1)[0].rstrip(".")


@app.command()
def validate(
    scenario: Scenario,
    changes: Changes = None,
    resolved: bool = option(False, "Print the scenario with all defaults and device profiles filled in.", "--resolved"),
) -> None:
    """Check a scenario without running it."""
    from edgefl.flower.scenario import AppScenario, load_any_scenario
    from edgefl.scenario import rehearse, resolve
    from edgefl.scenario.overrides import blaming_changes
    from edgefl.yaml_file import dump_yaml

    checked, has_flower = load_any_scenario(scenario, changes or ()), find_spec("flwr") is not None
    traces: list[TraceFigures] = []
    if not isinstance(checked, AppScenario):
        traces = rehearse(checked, file=scenario, overrides=changes or (), limited=True)
    elif has_flower:
        from edgefl.flower.run import run_configs

        with blaming_changes(changes or (), scenario):
            run_configs(checked, checked.methods)
    if resolved:
        say(dump_yaml(resolve(checked)), nl=False)
    else:
        runs = f"{counted(len(checked.methods), 'method')} x {counted(len(checked.seeds), 'seed')}"
        if isinstance(checked, AppScenario):
            runs += " of a Flower app"
            runs += "; to run it: python -m pip install -e '.[flower]' in edgefl's folder" * (not has_flower)
        else:
            runs += f", {counted(checked.training.rounds, 'round')}"
        say(f"{scenario}: valid ({checked.name}: {checked.data.clients} clients, {runs})")
        for place in dict.fromkeys(each.place for each in traces):
            _say_traces(place, [each for each in traces if each.place == place])


MANY = 6
"""More traces of a link are described together."""


def _say_traces(place: str, traces: Sequence[TraceFigures]) -> None:
    from edgefl.report.quantities import quantity
    from edgefl.units import spelt

    def shown(name: str, figure: float) -> str:
        return spelt(float(f"{figure:.3g}"), "bits_per_second") if name == "mean" else quantity(figure, "seconds")

    if len(traces) <= MANY:
        for each in traces:
            period, mean, gap = (shown(name, getattr(each, name)) for name in ("period", "mean", "gap"))
            say(f"{place}: {each.name or 'trace'}: period {period}, mean {mean}, longest gap {gap}")
        return
    parts = []
    for name, title in (("period", "periods"), ("mean", "means"), ("gap", "longest gaps")):
        ends = (pick(traces, key=attrgetter(name)) for pick in (min, max))
        parts.append(f"{title} " + " to ".join(f"{shown(name, getattr(each, name))} ({each.name})" for each in ends))
    say(f"{place}: {len(traces)} traces: {', '.join(parts)}")


@app.command()
def schema() -> None:
    """Print the JSON schema of scenario files."""
    from edgefl.flower.scenario import json_schema_of_any

    say(json.dumps(json_schema_of_any(), indent=2, ensure_ascii=False))
