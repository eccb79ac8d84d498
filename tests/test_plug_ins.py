"""The recipes of the docs, installed as packages from elsewhere and run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NETWORK = """
network:
  topology: {kind: star, server: {down: 100 Mbit/s, up: 100 Mbit/s}, latency: 20 ms}
  links: {5g: {down: 20 Mbit/s, up: 20 Mbit/s}}
"""
PROGRAM = """
import sys
from pathlib import Path
from edgefl.experiment import run
from edgefl.scenario import load_scenario
run(load_scenario(Path(sys.argv[1])), out=Path(sys.argv[2]), device="cpu", engine="sequential")
"""


def blocks(page, language):
    """The blocks of code of a page, or of one section of it (``page.md#Heading``)."""
    page, _, heading = page.partition("#")
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    if heading:
        text = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def install(page, folder):
    """What ``pip install`` leaves behind of a page's package: its module, and metadata beside it."""
    project = tomllib.loads(blocks(page, "toml")[0])["project"]
    name, version = project["name"], project["version"]
    code = "\n\n".join(blocks(page, "python"))
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    metadata = folder / f"{name}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{point} = {target}" for point, target in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return code


def simulate(scenario, folder):
    """The summary of a run by another process, which sees ``folder`` as a place of installed packages."""
    path = folder / "scenario.yaml"
    path.write_text(scenario, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), str(folder / "run")],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "run" / "summary.json").read_text(encoding="utf-8"))["methods"]


def test_a_method_in_one_file_outside_the_package_runs(tmp_path):
    code = install("methods.md#Add a method", tmp_path)
    assert len(code.splitlines()) + len(blocks("methods.md#Add a method", "toml")[0].splitlines()) < 40
    entries = simulate(
        """
name: plugged-in
data: {name: synthetic, shape: [1, 8, 8], classes: 4, train: 160, test: 40, clients: 4}
model: {name: cnn, width: 2}
training: {rounds: 2, cohort: 2, local: {batch: 16, lr: 0.1}}
fleet: [{profile: raspberry-pi-5, share: 1, link: 5g}]
methods:
  - fedavg
  - {method: fedlasso, kappa: 0, as: loose}
  - {method: fedlasso, kappa: 0.01, as: tight, server: {kind: fedavgm}}
"""
        + NETWORK,
        tmp_path,
    )
    fedavg, loose, tight = (entries[label][0] for label in ("fedavg", "loose", "tight"))
    assert fedavg["accuracy"] == loose["accuracy"]
    assert loose["bytes"] == fedavg["bytes"]
    assert loose["flops"] == tight["flops"] > fedavg["flops"]


TEACHER = "methods.md#A frozen teacher"
TAUGHT = """
name: taught
data: {name: synthetic, shape: [1, 8, 8], classes: 4, train: 160, test: 40, clients: 4}
training: {rounds: 3, cohort: 2, local: {batch: 8, lr: 0.1}}
fleet: [{profile: raspberry-pi-5, share: 1, link: 5g}]
"""


def test_the_recipe_of_a_frozen_teacher_runs_as_the_page_shows_it(tmp_path):
    install(TEACHER, tmp_path)
    scenario = TAUGHT + blocks(TEACHER, "yaml")[0] + NETWORK
    entries = simulate(scenario, tmp_path)
    fedavg, taught = entries["fedavg"][0], entries["taught"][0]
    model = fedavg["bytes"]["down"] // (3 * 2)  # rounds, clients
    assert taught["bytes"]["down"] == 3 * 2 * model + 2 * 2 * model
    assert taught["bytes"]["up"] == fedavg["bytes"]["up"]
    assert taught["flops"] > fedavg["flops"]
    assert taught["accuracy"]["final"] > 0.5
    first = {path.relative_to(tmp_path): path.read_bytes() for path in (tmp_path / "run").rglob("*.parquet")}
    (tmp_path / "run").rename(tmp_path / "first")
    assert simulate(scenario, tmp_path) == entries
    assert all((tmp_path / path).read_bytes() == content for path, content in first.items())


MESSAGES = {
    "no broadcast": (
        ("server=AveragingServer()", "server=Mean()"),
        "method 'taught': Taught reads the frozen copy 'teacher', which its server update 'mean' does not broadcast "
        "and its clients do not keep; expected one of: received",
    ),
    "no part": (
        ("payload=ModelAndTeacher", "payload=Payload"),
        "method 'taught': AveragingServer broadcasts 'teacher', but Payload sends no part 'teacher' in round "
        "2, so its bytes would not be counted (parts: model); return Part('teacher', sizes.model_bytes, round) from "
        "downlink, or name the part that carries it in carried_by of AveragingServer",
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_teacher_that_nobody_sends_is_refused_with_one_message_by_every_command(tmp_path, name):
    (before, after), message = MESSAGES[name]
    code = install(TEACHER, tmp_path)
    assert code.count(before) == 1
    (tmp_path / "taught.py").write_text(code.replace(before, after), encoding="utf-8")
    path = tmp_path / "scenario.yaml"
    path.write_text(TAUGHT + "model: {name: plain}\nmethods: [fedavg, taught]\n" + NETWORK, encoding="utf-8")
    commands = [
        ["scenario", "validate", str(path)],
        ["plan", str(path)],
        ["simulate", str(path), "--out", str(tmp_path / "run")],
        ["simulate", str(path), "--no-train", "--out", str(tmp_path / "run")],
        ["cost", "--model", "plain", "--method", "taught", "--shape", "1x8x8"],
    ]
    program = f"from edgefl.cli import main\nfor each in {commands!r}:\n    print(main(each), flush=True)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    told = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(told) == len(commands), done.stderr
    assert all(line.endswith(message) for line in told), done.stderr
    assert all("methods.1: " in line for line in told[:4])
    assert done.stdout.split() == ["2"] * len(commands)
    assert not (tmp_path / "run").exists()


def test_a_data_set_a_model_a_selector_and_a_device_from_elsewhere_run_together(tmp_path):
    install("extending.md", tmp_path)
    scenario = "name: plugged-in\nmethods: [fedavg]\n" + blocks("extending.md", "yaml")[-1] + NETWORK
    entry = simulate(scenario, tmp_path)["fedavg"][0]
    assert entry["accuracy"]["final"] == pytest.approx(1.0, abs=0.05)
    rows = read_decisions(tmp_path / "run" / "fedavg" / "seed-0" / "events.parquet")
    assert rows == [[0, 1], [2, 3], [4, 5]]


def read_decisions(path):
    import pyarrow.parquet as pq

    rows = pq.read_table(path).to_pylist()
    return [json.loads(row["detail"])["clients"] for row in rows if row["kind"] == "decision"]
