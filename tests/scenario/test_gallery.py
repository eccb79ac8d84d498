"""Every shipped scenario runs, and its log can be believed."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

from edgefl import shipped
from edgefl.experiment import run
from edgefl.planning.planning import plan
from edgefl.report import RunResult
from edgefl.report.statistics import mean_interval
from edgefl.report.verdict import verdict
from edgefl.rerun.verify import verify
from edgefl.scenario import load_scenario

GALLERY = [name for name in shipped.files("scenarios") if "/" not in name]


def extras(name: str) -> list[str]:
    """The extras that a scenario's comment names."""
    text = shipped.files("scenarios")[name].read_text(encoding="utf-8")
    return [extra for found in re.findall(r"'edgefl\[([\w,]+)\]'", text) for extra in found.split(",")]


def play(folder: Path) -> Path:
    """A folder with a play of 100 speakers in place of Shakespeare's."""
    (folder / "tinyshakespeare").mkdir(parents=True)
    text = "".join(f"S{number}:\n{'To be, or not to be. ' * 30}\n\n" for number in range(100))
    (folder / "tinyshakespeare" / "input.txt").write_text(text, encoding="utf-8")
    return folder


PLAIN = ("5g_100clients",)


def marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.extras] * any(extras(name)) + [pytest.mark.full] * (name not in PLAIN)


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in GALLERY])
def test_a_shipped_scenario_runs_three_rounds_and_verifies(name, tmp_path):
    for extra in extras(name):
        pytest.importorskip(extra, reason=f"{extra} is not installed: pip install 'edgefl[{extra}]'")
    changes = {"training.rounds": 3, "stop": "rounds"}
    if "shakespeare" in name:
        changes["data.root"] = str(play(tmp_path / "data"))
    scenario = load_scenario(name, changes)
    scenario = scenario.with_seeds(scenario.seeds[:1])
    labels = [method.label for method in scenario.methods][:8]
    folder = run(scenario, out=tmp_path / "run", methods=labels, train=False)
    assert verify(folder) == []
    methods = json.loads((folder / "summary.json").read_text())["methods"]
    assert {entry[0]["stop"]["reason"] for entry in methods.values()} == {"rounds"}


def test_every_shipped_scenario_begins_with_what_it_shows():
    files = shipped.files("scenarios")
    assert [name for name in GALLERY if not files[name].read_text(encoding="utf-8").startswith("# ")] == []


@pytest.mark.full
def test_front_blocks_are_one_round_old_where_all_clients_take_part_and_old_where_few_do(tmp_path):
    entries = {}
    for name in ("5g_10clients", "5g_100clients"):
        scenario = load_scenario(name, {"stop": "rounds"}).with_seeds([0])
        folder = run(scenario, out=tmp_path / name, methods=["fedavg", "fedbr"], train=False)
        entries[name] = json.loads((folder / "summary.json").read_text())["methods"]
    assert [method.label for method in load_scenario("5g_10clients").methods] == ["fedavg", "fedmlb", "fedbr"]
    few, many = ({label: entry[0] for label, entry in found.items()} for found in entries.values())
    assert few["fedbr"]["blocks"]["front_age"] == 1.0
    assert few["fedbr"]["bytes"]["down"] < 0.85 * few["fedavg"]["bytes"]["down"]
    assert many["fedbr"]["blocks"]["front_age"] > 9.0


@pytest.mark.full
def test_overlap_saves_time_where_links_are_slow(tmp_path):
    scenario = load_scenario("fedadc_overlap", {"training.rounds": 6, "stop": "rounds"}).with_seeds([0])
    folder = run(scenario, out=tmp_path / "run", methods=["fedadc", "fedadc-overlap"], train=False)
    methods = json.loads((folder / "summary.json").read_text())["methods"]
    assert methods["fedadc-overlap"][0]["seconds"] < 0.9 * methods["fedadc"][0]["seconds"]


@pytest.mark.full
def test_a_slow_station_slows_its_hall_only_under_rate_fairness(tmp_path):
    seconds = {}
    for sharing in ("rate_fair", "airtime_fair"):
        changes = {"training.rounds": 6, "network.topology.sharing": sharing}
        folder = run(load_scenario("factory_wifi", changes), out=tmp_path / sharing, methods=["fedavg"], train=False)
        events = json.loads((folder / "summary.json").read_text())["methods"]["fedavg"][0]
        seconds[sharing] = events["seconds"]
    assert seconds["rate_fair"] != seconds["airtime_fair"]


@pytest.mark.full
def test_the_allowance_of_lte_500phones_ends_before_the_month_and_fedadc_first():
    scenario = load_scenario("lte_500phones")
    made = plan(scenario, methods=["fedavg", "fedadc"], rounds=6)
    reach = {each.label: {budget.kind: budget for budget in each.budgets} for each in made.methods}
    for budgets in reach.values():
        assert budgets["client_bytes"].rounds < budgets["seconds"].rounds
    assert reach["fedadc"]["client_bytes"].rounds < 0.7 * reach["fedavg"]["client_bytes"].rounds


TUNING = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text(encoding="utf-8")
SAVED = int(re.search(r"FedBR reaches FedMLB's accuracy with (\d+) % fewer downloaded bytes", TUNING)[1])
"""The share of FedMLB's downloaded bytes that FedBR does not download, in percent, by the page."""


def cells_of_the_page() -> dict[tuple[str, str], str]:
    """What docs/tuning.md shows of ``5g_10clients``, by method and column."""
    table = re.search(r"^\|.*accuracy, %.*\n\|.*\n((?:\|.*\n)+)", TUNING, re.MULTILINE)
    head, _, *rows = ([cell.strip() for cell in line.strip("|\n").split("|")] for line in table[0].splitlines())
    return {(row[0], name): cell for row in rows for name, cell in list(zip(head, row, strict=True))[1:]}


COLUMNS = {
    "accuracy, %": lambda entry: 100 * entry["accuracy"]["final"],
    "to 90 %, s": lambda entry: entry["targets"][1]["seconds"],
    "sixty rounds, s": lambda entry: entry["seconds"],
    "download, MB": lambda entry: entry["bytes"]["down"] / 1e6,
    "energy, J": lambda entry: entry["joules"],
    "age of front blocks, rounds": lambda entry: entry["blocks"]["front_age"] if "blocks" in entry else None,
}
"""The figure of a run that each column shows."""


def agrees(place: tuple[str, str], methods: dict, *, exactly: bool) -> bool:
    """Whether a mean over the seeds, rounded as on the page, is the page's, or in its interval."""
    label, column = place
    cell, values = cells_of_the_page()[place], [COLUMNS[column](each) for each in methods[label]]
    if cell == "–":
        return values == [None] * len(values)
    shown, _, half_width = cell.partition(" ± ")
    mean = round(mean_interval(values).mean, len(shown.partition(".")[2]))
    return abs(mean - float(shown)) <= (0 if exactly else float(half_width or 0))


def saved(methods: dict) -> float:
    """The share of FedMLB's downloaded bytes that FedBR does not download, in percent."""
    down = {label: sum(each["bytes"]["down"] for each in methods[label]) for label in ("fedmlb", "fedbr")}
    return 100 * (1 - down["fedbr"] / down["fedmlb"])


@pytest.mark.full
def test_the_page_shows_the_times_bytes_and_energy_of_ten_clients(tmp_path):
    """FedBR's choice of blocks reads losses, so without training its figures are near the page's only."""
    folder = run(load_scenario("5g_10clients"), out=tmp_path / "run", train=False)
    methods = json.loads((folder / "summary.json").read_text())["methods"]
    page = cells_of_the_page()
    assert list(page) == list(itertools.product(methods, COLUMNS))
    untrained = list(itertools.product(methods, list(COLUMNS)[2:]))
    assert [place for place in untrained if not agrees(place, methods, exactly=place[0] != "fedbr")] == []
    shown = [float(page[label, "download, MB"].split(" ")[0]) for label in ("fedbr", "fedmlb")]
    assert round(100 * (1 - shown[0] / shown[1])) == SAVED
    assert abs(saved(methods) - SAVED) < 1


@pytest.mark.release
def test_fedbr_reaches_fedmlbs_accuracy_where_all_clients_take_part(tmp_path):
    folder = run(load_scenario("5g_10clients"), out=tmp_path / "run")
    methods = json.loads((folder / "summary.json").read_text())["methods"]
    assert [place for place in cells_of_the_page() if not agrees(place, methods, exactly=False)] == []
    final = {label: mean_interval([COLUMNS["accuracy, %"](each) for each in methods[label]]).mean for label in methods}
    assert final["fedbr"] > final["fedmlb"] - 1
    accuracies = verdict(RunResult(folder)).split("\n")[0]
    assert accuracies.startswith("After 60 rounds, ")
    assert accuracies.endswith(" are tied.")
    assert round(saved(methods)) == SAVED
