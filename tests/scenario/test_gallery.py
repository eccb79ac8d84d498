"""Shipped scenarios and those of papers."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest

from edgefl import shipped
from edgefl.experiment import run
from edgefl.methods.build import build_method
from edgefl.planning.planning import plan
from edgefl.report import RunResult, verdict
from edgefl.report.statistics import mean_interval
from edgefl.rerun.verify import verify
from edgefl.scenario import load_scenario
from edgefl.scenario.rehearsal import rehearse
from edgefl.yaml_file import read_yaml

GALLERY = [name for name in shipped.files("scenarios") if "/" not in name]


def extras(name: str) -> list[str]:
    """The extras that a scenario's comment names."""
    text = shipped.files("scenarios")[name].read_text(encoding="utf-8")
    return [extra for found in re.findall(r"'\.\[([\w,]+)\]'", text) for extra in found.split(",")]


def play(folder: Path) -> Path:
    """A folder with a play of 100 speakers in place of Shakespeare's."""
    (folder / "tinyshakespeare").mkdir(parents=True)
    text = "".join(f"S{number}:\n{'To be, or not to be. ' * 120}\n\n" for number in range(100))
    (folder / "tinyshakespeare" / "input.txt").write_text(text, encoding="utf-8")
    return folder


PLAIN = ("5g_100clients",)


def marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.extras] * any(extras(name)) + [pytest.mark.full] * (name not in PLAIN)


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in GALLERY])
def test_a_shipped_scenario_runs_three_rounds_and_verifies(name, tmp_path):
    for extra in extras(name):
        pytest.importorskip(
            {"privacy": "dp_accounting"}.get(extra, extra),
            reason=f"{extra} is not installed: pip install -e '.[{extra}]'",
        )
    changes = {"training.rounds": 3, "stop": "rounds"}
    if load_scenario(name).data.name == "shakespeare":
        changes["data.root"] = str(play(tmp_path / "data"))
    scenario = load_scenario(name, changes)
    scenario = scenario.with_seeds(scenario.seeds[:1])
    labels = [method.label for method in scenario.methods][:8]
    folder = run(scenario, out=tmp_path / "run", methods=labels, train=False)
    assert verify(folder) == []
    methods = json.loads((folder / "summary.json").read_text())["methods"]
    assert {entry[0]["stop"]["reason"] for entry in methods.values()} == {"rounds"}


@pytest.mark.full
def test_the_allowance_of_lte_500phones_ends_before_the_month_and_fedadc_first():
    scenario = load_scenario("lte_500phones")
    made = plan(scenario, methods=["fedavg", "fedadc"], rounds=6)
    reach = {each.label: {budget.kind: budget for budget in each.budgets} for each in made.methods}
    for budgets in reach.values():
        assert budgets["client_bytes"].rounds < budgets["seconds"].rounds
    assert reach["fedadc"]["client_bytes"].rounds < 0.7 * reach["fedavg"]["client_bytes"].rounds


PAGE = (Path(__file__).parents[2] / "docs" / "results.md").read_text(encoding="utf-8")
SAVED = int(re.search(r"FedBR reaches FedMLB's accuracy with (\d+) % fewer downloaded bytes", PAGE)[1])
"""The share of FedMLB's downloaded bytes that FedBR does not download, in percent, by the page."""


def cells_of_the_page() -> dict[tuple[str, str], str]:
    """What docs/results.md shows of ``5g_10clients``, by method and column."""
    section = PAGE.partition("## FedBR where all clients take part")[2]
    table = re.search(r"^\|.*accuracy, %.*\n\|.*\n((?:\|.*\n)+)", section, re.MULTILINE)
    head, _, *rows = ([cell.strip() for cell in line.strip("|\n").split("|")] for line in table[0].splitlines())
    return {(row[0], name): cell for row in rows for name, cell in list(zip(head, row, strict=True))[1:]}


COLUMNS = {
    "accuracy, %": lambda entry: 100 * entry["accuracy"]["final"],
    "to 90 %, s": lambda entry: entry["targets"][1]["seconds"],
    "sixty rounds, s": lambda entry: entry["seconds"],
    "download, MB": lambda entry: entry["bytes"]["down"] / 1e6,
    "energy, J": lambda entry: entry["joules"],
    "age of stale blocks, rounds": lambda entry: entry["blocks"]["front_age"] if "blocks" in entry else None,
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
    assert accuracies.startswith("Best after 60 rounds:  no clear winner: ")
    assert round(saved(methods)) == SAVED


SAID = {name: read_yaml(file) for name, file in shipped.files("scenarios").items() if name.startswith("papers/")}
"""What stands in their files; reading one takes a twentieth of a second."""
HEAVY = [name for name, said in SAID.items() if said["model"]["name"] == "resnet18"]
CLASSES = {"cifar10": 10, "cifar100": 100, "tiny_imagenet": 200, "parquet": 200}


PAPERS = ("fedadc", "fedalign", "fedbr", "fedmlb")
FIRST = [next(name for name in SAID if name.startswith(f"papers/{paper}/")) for paper in PAPERS]
"""One scenario of each paper."""


def first_of_each(mark=None):
    """All scenarios: the first of each paper with a mark or none, the others before a release."""
    marks = [] if mark is None else [mark]
    return [pytest.param(name, marks=marks if name in FIRST else [pytest.mark.release]) for name in SAID]


def synthetic(name, side):
    """Made-up images of as many classes in place of its own; of fewer clients where all of them are to train."""
    said = SAID[name]
    data = said["data"]
    kept = {key: data[key] for key in ("clients", "partition", "test", "augment", "normalise") if key in data}
    classes = CLASSES[data["name"]]
    clients = 8 if "personalisation" in said else data["clients"]
    return {
        **kept,
        "name": "synthetic",
        "shape": [3, side, side],
        "classes": classes,
        "clients": clients,
        "train": 60 * clients,
        "test_images": classes,
    }


def two_rounds(name, folder, **changes):
    """Two rounds of two clients and one step each, with the first method and the last.

    Table after table holds the same step with other weights; these two stand for the rest.
    """
    short = {
        "data": synthetic(name, side=16),
        "training.rounds": 2,
        "training.cohort": 2,
        "training.local": {"steps": 1, "batch": 8, "lr": 0.01},
        "evaluation": {"every": 2},
        "seeds": [0],
    }
    scenario = load_scenario(name, {**short, **changes})
    labels = list(dict.fromkeys([scenario.methods[0].label, scenario.methods[-1].label]))
    run(scenario, out=folder, methods=labels)
    return folder


@pytest.mark.parametrize("name", SAID)
def test_published_numbers_belong_to_methods_and_rounds_of_the_scenario(name):
    scenario = load_scenario(name)
    labels = {method.label for method in scenario.methods}
    assert scenario.published
    for each in scenario.published:
        assert set(each.mean_of or [each.method]) <= labels
        assert each.round is None or each.round <= scenario.training.rounds
        if each.metric.startswith("accuracy") and each.metric != "accuracy_gain":
            assert each.value is None or 0.1 < each.value < 1
        if each.accuracy is not None:
            assert each.accuracy in scenario.targets
        if each.metric == "accuracy_gain":
            assert scenario.personalisation is not None
    for method in scenario.methods if "/fedalign/" in name else ():
        clip_norm = build_method(method.entry, scenario.training.local).local.clip_norm
        assert clip_norm == (10 if method.name == "fedalign" else None)
    partition = scenario.data.partition.model_dump()
    if "/fedadc/" in name and partition["kind"] == "dirichlet":
        assert partition["form"] == "client_wise"


FEDBR = [name for name in SAID if name.startswith("papers/fedbr/")]


@pytest.mark.parametrize("clients", [10, 100])
@pytest.mark.parametrize(
    "name", ["papers/fedbr/fig3_cifar10", *(f"papers/fedbr/fig7_level{level}" for level in (5, 9))]
)
def test_both_readings_of_fedbrs_clients_divide_its_50000_images_evenly(name, clients):
    scenario = load_scenario(name, {"data.clients": clients})
    classes = CLASSES[scenario.data.name]
    sizes = scenario.data.partition.sizes(np.full(classes, 50_000 // classes), clients, np.random.default_rng(0))
    assert sizes.tolist() == clients * [50_000 // clients]


def test_fedbrs_scenarios_have_ten_clients_the_same_options_and_symmetric_links():
    assert len(FEDBR) == 19
    varied = {"scheduler", "full_every", "temperature", "lambda_1", "lambda_2", "as"}
    for name in FEDBR:
        said, scenario = SAID[name], load_scenario(name)
        assert said["data"]["clients"] == scenario.training.cohort == 10
        blocks = [each for each in said["methods"] if isinstance(each, dict) and each["method"] == "fedbr"]
        for each in blocks:
            kept = {key: value for key, value in each.items() if key not in varied}
            assert kept == {"method": "fedbr", "block_bytes": "uniform", "first_send": "none"}
        assert said["network"]["links"]["lan"].get("symmetric", False) == ("fig8" in name)
        assert "--set data.clients=100" in shipped.files("scenarios")[name].read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SAID)
def test_a_papers_scenario_says_what_is_chosen(name):
    assert "# Chosen here, because the paper leaves it open: " in shipped.files("scenarios")[name].read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("name", first_of_each())
def test_every_method_of_a_papers_scenario_fits_its_network(name):
    parquet = "imagenet200" in name
    rehearse(load_scenario(name, {"data": synthetic(name, side=224)} if parquet else {}))


@pytest.mark.parametrize("name", first_of_each(pytest.mark.full))
def test_two_rounds_of_a_papers_scenario_run(name, tmp_path):
    # ResNet-18 has sixteen times these networks' parameters; FedAlign's narrow block is a residual network's.
    smaller = {"model": {"name": "resnet56" if "fedalign" in name else "squeezenet"}} if name in HEAVY else {}
    assert (two_rounds(name, tmp_path / "run", **smaller) / "summary.json").exists()


@pytest.mark.release
@pytest.mark.parametrize("name", HEAVY)
def test_two_rounds_of_a_papers_scenario_run_with_its_own_network(name, tmp_path):
    assert (two_rounds(name, tmp_path / "run") / "summary.json").exists()
