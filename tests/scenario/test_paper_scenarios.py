"""The papers' experiments as scenarios: each is legal, runs, and names its numbers' methods rightly."""

import pytest

from edgefl import shipped
from edgefl.experiment import run
from edgefl.scenario import load_scenario

PAPERS = [name for name in shipped.files("scenarios") if name.startswith("papers/")]


def test_all_four_papers_have_scenarios():
    assert {name.split("/")[1] for name in PAPERS} == {"fedadc", "fedalign", "fedbr", "fedmlb"}


@pytest.mark.parametrize("name", PAPERS)
def test_published_numbers_belong_to_methods_and_rounds_of_the_scenario(name):
    scenario = load_scenario(name)
    labels = {method.label for method in scenario.methods}
    assert scenario.published
    for each in scenario.published:
        assert each.method in labels
        assert each.round is None or each.round <= scenario.training.rounds
        if each.metric.startswith("accuracy"):
            assert each.value is None or 0.1 < each.value < 1
        if each.accuracy is not None:
            assert each.accuracy in scenario.targets


@pytest.mark.parametrize("name", PAPERS)
def test_two_rounds_of_a_papers_scenario_run(name, tmp_path):
    changes = {"training.rounds": 2, "training.cohort": 2, "seeds": [0]}
    if "tiny_imagenet" in name:
        changes["data.name"] = "cifar100"
    scenario = load_scenario(name, changes)
    # Table after table holds the same step with other weights; the first and the last method stand for the rest.
    labels = list(dict.fromkeys([scenario.methods[0].label, scenario.methods[-1].label]))
    run(scenario, out=tmp_path / "run", methods=labels, train=False)
    assert (tmp_path / "run" / "summary.json").exists()
