"""The papers' experiments as scenarios: each is legal, runs, and names its numbers' methods rightly."""

import pytest

from edgefl import shipped
from edgefl.experiment import run
from edgefl.methods.build import build_method
from edgefl.scenario import load_scenario
from edgefl.scenario.rehearsal import rehearse
from edgefl.yaml_file import read_yaml

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


def test_all_four_papers_have_scenarios():
    assert {name.split("/")[1] for name in SAID} == set(PAPERS)


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
