"""A run beside a paper's numbers: gaps are differences, and an order holds or is named where it doesn't."""

import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from edgefl.cli.entry import app
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.methods.recipe import METHODS
from edgefl.report import RunResult
from edgefl.report.published import comparisons, orderings, published_table
from edgefl.scenario import load_scenario, resolve
from edgefl.scenario.loading import check
from edgefl.yaml_file import dump_yaml

ACCURACIES = {"fedavg": [0.1, 0.3, 0.5, 0.4], "fedprox": [0.2, 0.5, 0.6, 0.6]}


def number(method, metric, **said):
    return {"method": method, "metric": metric, "source": "a table", **said}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A run of four rounds with these accuracies."""
    folder = run(check(SCENARIO), out=tmp_path_factory.mktemp("published") / "run", train=False)
    for label, accuracies in ACCURACIES.items():
        file = folder / label / "seed-0" / "rounds.parquet"
        table = pq.read_table(file)
        place = table.column_names.index("accuracy")
        pq.write_table(table.set_column(place, "accuracy", pa.array(accuracies)), file)
    return folder


@pytest.fixture
def result(base, tmp_path):
    """Gives the run published numbers."""

    def make(*published, name="small"):
        folder = Path(shutil.copytree(base, tmp_path / f"run-{len(list(tmp_path.glob('run-*')))}"))
        scenario = resolve(check({**SCENARIO, "name": name, "published": list(published)}))
        (folder / "scenario.yaml").write_text(dump_yaml(scenario), encoding="utf-8")
        summary = folder / "summary.json"
        summary.write_text(json.dumps({**json.loads(summary.read_text()), "scenario": name}))
        return RunResult(folder)

    return make


SCENARIO = {
    "name": "small",
    "data": {"name": "synthetic", "shape": [1, 8, 8], "classes": 4, "train": 320, "test": 80, "clients": 4},
    "model": {"name": "cnn", "width": 2},
    "training": {"rounds": 4, "cohort": 2},
    "fleet": [{"profile": "jetson-nano", "share": 1, "link": "lan"}],
    "network": {
        "topology": {"kind": "star", "server": {"down": "1 Gbit/s", "up": "1 Gbit/s"}},
        "links": {"lan": {"down": "10 Mbit/s", "up": "10 Mbit/s"}},
    },
    "methods": ["fedavg", "fedprox"],
    "stop": "rounds",
}


def test_gaps_are_ours_minus_the_papers(result):
    found = comparisons(
        result(
            number("fedavg", "accuracy", value=0.45),
            number("fedavg", "accuracy_best", value=0.45),
            number("fedavg", "accuracy", value=0.45, round=2),
            number("fedprox", "rounds_to", accuracy=0.5, value=5),
        )
    )
    assert [each.gap for each in found] == pytest.approx([-0.05, 0.05, -0.15, -3])


def test_the_order_holds_where_ours_differ_the_same_way(result):
    made = result(number("fedavg", "accuracy", value=0.6), number("fedprox", "accuracy", value=0.7))
    assert orderings(comparisons(made)) == ["accuracy: the paper's order holds (1 pairs)."]


def test_pairs_in_another_order_are_named(result):
    made = result(number("fedavg", "accuracy", rank=1), number("fedprox", "accuracy", rank=2))
    assert orderings(comparisons(made)) == ["accuracy: 0 of 1 pairs in the paper's order; not fedavg before fedprox."]


@pytest.mark.full
def test_the_places_of_two_sources_are_two_claims_apart_from_the_numbers(result):
    made = result(
        number("fedavg", "accuracy", value=0.3),
        number("fedprox", "accuracy", value=0.4),
        {**number("fedavg", "accuracy", rank=1), "source": "a figure"},
        {**number("fedprox", "accuracy", rank=2), "source": "a figure"},
        {**number("fedprox", "accuracy", rank=1), "source": "a sentence"},
        {**number("fedavg", "accuracy", rank=2), "source": "a sentence"},
    )
    assert orderings(comparisons(made)) == [
        "accuracy: the paper's order holds (1 pairs).",
        "accuracy (a figure): 0 of 1 pairs in the paper's order; not fedavg before fedprox.",
        "accuracy (a sentence): the paper's order holds (1 pairs).",
    ]


def test_what_fits_into_a_budget_is_the_last_round_that_ended_within_it(result):
    made = result()
    rows = made.rounds_of("fedprox", 0).to_pylist()
    moved = sum(row["bytes_down"] + row["bytes_up"] for row in rows[:2])
    second = rows[1]["seconds"]
    found = comparisons(
        result(
            number("fedprox", "accuracy", value=0.45, seconds=second),
            number("fedprox", "accuracy", value=0.45, bytes=moved),
            number("fedprox", "accuracy", value=0.45, bytes=moved - 1),
            number("fedprox", "rounds", value=1, seconds=second / 1e6),
        )
    )
    assert [each.ours for each in found] == [0.5, 0.5, 0.2, None]
    assert found[0].metric.startswith("accuracy within ")


@pytest.mark.full
def test_a_number_may_be_the_mean_of_several_methods(result):
    (found,) = comparisons(result(number("both", "accuracy", value=0.4, mean_of=["fedavg", "fedprox"])))
    assert (found.method, found.ours, found.gap) == ("both", pytest.approx(0.5), pytest.approx(0.1))


@pytest.mark.full
def test_an_upper_bound_has_no_gap_and_comes_before_its_number(result):
    bound, known = comparisons(
        result(
            number("fedprox", "rounds_to", accuracy=0.5, value=4, less_than=True),
            number("fedavg", "rounds_to", accuracy=0.5, value=4),
        )
    )
    assert bound.gap is None
    assert bound.order < known.order
    assert (bound.bound, bound.published, bound.ours) == ("less than", 4, 2)


@pytest.mark.full
def test_what_personalisation_gains_is_the_difference_by_images(result):
    made = result(number("fedavg", "accuracy_gain", value=0.03), number("fedavg", "accuracy_personalised", value=0.5))
    assert [each.ours for each in comparisons(made)] == [None, None]
    data = json.loads((made.path / "summary.json").read_text(encoding="utf-8"))
    for name, by_images in (("clients", 0.5), ("personalisation", 0.54)):
        data["methods"]["fedavg"][0][name] = {"mean": 0.1, "cumulative": by_images, "worst_tenth": 0.1}
    (made.path / "summary.json").write_text(json.dumps(data), encoding="utf-8")
    assert [each.ours for each in comparisons(RunResult(made.path))] == pytest.approx([0.04, 0.54])


def test_a_run_without_published_numbers_is_refused(result):
    with pytest.raises(UserError, match="no published numbers"):
        comparisons(result())


def test_the_command_prints_both_numbers_and_the_order(result):
    made = result(number("fedavg", "accuracy", value=0.45), number("fedprox", "accuracy", value=0.7))
    output = CliRunner().invoke(app, ["report", str(made.path), "--against", "paper"]).output
    assert "45.0 %" in output
    assert "-5.0 %" in output
    assert "order holds" in output
    told = json.loads(CliRunner().invoke(app, ["report", str(made.path), "--against", "paper", "--json"]).output)
    assert [(row["method"], row["published"], row["ours"]) for row in told["rows"]] == [
        ("fedavg", 0.45, 0.4),
        ("fedprox", 0.7, 0.6),
    ]
    assert told["rows"][0]["gap"] == pytest.approx(-0.05)
    assert list(told["rows"][0]) == [
        *("run", "method", "metric", "dimension", "published", "bound", "rank", "ours", "gap", "source")
    ]
    assert "order holds" in told["orders"][0]["sentences"][0]


def test_a_run_shorter_than_the_papers_is_told(result):
    made = result(number("fedavg", "accuracy", value=0.45), name="fedadc_fig1_s2")
    whole = load_scenario("papers/fedadc/fig1_s2").training.rounds
    sentence = f"4 of {whole} rounds: the published numbers are for all {whole}."
    output = CliRunner().invoke(app, ["report", str(made.path), "--against", "paper"]).output
    assert sentence in output
    assert published_table([made]).data["notes"] == [f"fedadc_fig1_s2: {sentence}"]


TITLE_PAGES = {
    "fedbr": "Liu et al. 2023", "fedmlb": "Kim et al. 2022", "fedalign": "Mendieta et al. 2022",
    "fedadc": "Ozfatura, Ozfatura and Gündüz",
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("name", TITLE_PAGES)
def test_a_papers_authors_are_those_of_its_title_page(name):
    scenarios = (Path(__file__).parents[2] / "scenarios" / "papers" / name).rglob("*.yaml")
    credited = {
        each
        for path in scenarios
        for each in re.findall(r"'([^',]+(?:, Ozf[^',]+)?), Fed", re.sub("#.*", "", path.read_text()))
    }
    assert credited == {TITLE_PAGES[name]}
    assert METHODS[name].paper.startswith(TITLE_PAGES[name].partition(",")[0])
