"""``edgefl new``: a folder to begin with, from a CSV file or with the files of the tutorial."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any, Literal

import typer

from edgefl.cli.arguments import argument, option
from edgefl.cli.printing import say
from edgefl.errors import UserError
from edgefl.files import read_text, user_path, writing_folder

DEVICES = "raspberry-pi-4,phone-mid-range"
Network = Literal["constant", "trace"]


def new(  # noqa: PLR0917  (Typer reads options from the signature)
    folder: Path = argument(..., "The new folder.", parser=user_path, metavar="FOLDER"),
    csv: Path | None = option(
        None, "Data in a CSV file.", "--csv", parser=user_path, metavar="FILE", unset="images of digits, by a script"
    ),
    target: str | None = option(
        None, "Its column of classes, or of numbers to estimate.", metavar="COLUMN", unset="the last"
    ),
    client: str | None = option(
        None, "Its column of clients.", metavar="COLUMN", unset="none: rows are divided at random"
    ),
    devices: str | None = option(None, "Profiles of the clients' devices.", metavar="NAME,…", unset=DEVICES),
    network: Network | None = option(None, "constant rates; trace: a table of rates over time.", unset="constant"),
) -> None:
    """Write a scenario to begin with, with its data and network: those of the tutorial, or from your CSV file.

    In a terminal, what no option says is asked: the data, the devices and the network.
    """
    from edgefl.shipped import folder as shipped

    if folder.exists():
        raise UserError("expected a folder that does not exist yet; choose another, or remove it", file=str(folder))
    if sys.stdin.isatty() and (csv, devices, network) == (None, None, None):
        if file := typer.prompt("Data: a CSV file, or Enter for images of digits", "", show_default=False):
            csv = user_path(file)
            target = typer.prompt("Its column of classes, or of numbers to estimate", "the last")
            target = None if target == "the last" else target
            client = typer.prompt("Its column of clients, or Enter for none", "", show_default=False) or None
        devices = typer.prompt("Devices (see edgefl profile list)", DEVICES)
        network = typer.prompt("Network: constant or trace", "constant")
    page = read_text(shipped("docs") / "tutorial.md")
    name = re.sub(r"[^A-Za-z0-9+_.-]+", "-", folder.resolve().name).lstrip("+_.-") or "mine"
    lines = {"name": f"name: {name}", "  - ": _fleet((devices or DEVICES).split(","))}
    files, steps, where = dict[str, str](), list[str](), shlex.quote(str(folder))
    if csv is None:
        if target or client:
            raise UserError("expected it with --csv", file="--target" if target else "--client")
        files = {each: _block(page, f"# {each}") for each in ("make_data.py", "net.py")}
        steps.append(f"(cd {where} && python make_data.py)")
    else:
        lines |= _of_table(csv, folder, target, client)
    if network == "trace":
        files["street.csv"] = _block(page, "time,rate")
        form = "{kind: trace, file: street.csv, format: {time: time, rate: rate, unit: Mbit/s}}"
        lines["  links"] = f"  links: {{home: {{down: {form}, up: 5 Mbit/s}}}}"
    elif network not in (None, "constant"):
        raise UserError(f"expected constant or trace, found '{network}'", file="--network")
    text = [line for line in _block(page, "# mine.yaml").splitlines() if not line.startswith("#")]
    for beginning, line in lines.items():
        place = next(number for number, each in enumerate(text) if each.startswith(beginning))
        text = [each for each in text if not each.startswith(beginning)]
        text[place:place] = [line] if line else []
    with writing_folder(folder) as unfinished:
        for file, content in {**files, "scenario.yaml": "\n".join(text) + "\n"}.items():
            (unfinished / file).write_text(content, encoding="utf-8")
    say(f"{folder}: {', '.join([*files, 'scenario.yaml'])}\n\nNext:")
    scenario = shlex.quote(str(folder / "scenario.yaml"))
    for step in [*steps, f"edgefl data show {scenario}", f"edgefl simulate {scenario} --out runs/{name}"]:
        say(f"  {step}")


def _block(page: str, beginning: str) -> str:
    """The block of the page that begins so."""
    found = re.search(rf"^```\w+\n({re.escape(beginning)}\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found is not None, beginning
    return found[1]


def _fleet(devices: list[str]) -> str:
    from edgefl.fleet import load_profile

    names = [each.strip() for each in devices]
    for each in names:
        load_profile(each)
    share = json.dumps(1 / len(names))
    return "\n".join(f"  - {{profile: {each}, share: {share}, link: home}}" for each in names)


def _of_table(csv: Path, folder: Path, target: str | None, client: str | None) -> dict[str, str]:
    """The lines of the scenario that differ for a CSV file; prints what was decided."""
    from edgefl.data.sets.table import proposed

    options, clients, regression = proposed(str(csv), target, client)
    path = os.path.relpath(csv.resolve(), folder.resolve())
    shown: dict[str, Any] = {"name": "table", "train": path, **options}
    data = ", ".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in shown.items())
    training = f"{{rounds: 15, cohort: {min(8, clients)}, local: {{epochs: 2, batch: 16, lr: 0.05}}}}"
    lines = {"data": f"data: {{{data}}}", "model": "model: {name: mlp}", "training": f"training: {training}"}
    if regression:
        methods = "methods: [fedavg, {method: fedprox, mu: 0.1}, fedadc]"
        lines |= {"seeds": "seeds: [0, 1]\ntask: regression", "methods": methods, "targets": ""}
    return lines
