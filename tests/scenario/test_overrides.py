"""--set: paths, values, and what is refused."""

import copy
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.scenario import load_scenario, rehearse
from edgefl.scenario.overrides import blamed, overridden, parse_overrides
from edgefl.yaml_file import dump_yaml

from ..small_runs import SMALL

DATA = {
    "training": {"rounds": 60, "local": {"lr": 0.2}},
    "fleet": [{"share": 0.5}, {"share": 0.5}],
    "methods": ["fedavg", {"method": "fedbr"}],
    "budgets": None,
}


def changed(*texts):
    return overridden(DATA, parse_overrides(texts))


def test_a_value_is_yaml_and_replaces_what_stood_there():
    assert changed("training={rounds: 5}")["training"] == {"rounds": 5}
    assert changed("training.local.lr=1e-3")["training"]["local"]["lr"] == 0.001
    assert changed("fleet.1.share=0.25")["fleet"] == [{"share": 0.5}, {"share": 0.25}]
    assert changed("budgets=null")["budgets"] is None
    assert changed("methods=[fedavg, {method: fedbr, scheduler: {kind: fixed, alpha: 3}}]")["methods"] == [
        "fedavg",
        {"method": "fedbr", "scheduler": {"kind": "fixed", "alpha": 3}},
    ]


def test_mappings_that_are_absent_or_null_are_created():
    assert changed("evaluation.every=5")["evaluation"] == {"every": 5}
    assert changed("budgets.seconds=60 s")["budgets"] == {"seconds": "60 s"}


def test_a_method_given_by_its_name_takes_options():
    assert changed("methods.0.mu=0.1")["methods"][0] == {"method": "fedavg", "mu": 0.1}
    assert changed("methods.0=fedprox")["methods"][0] == "fedprox"


def test_a_mapping_of_overrides_means_the_same_as_texts():
    by_mapping = overridden(DATA, parse_overrides({"training.rounds": 5, "fleet.0.share": 0.1}))
    assert by_mapping == changed("training.rounds=5", "fleet.0.share=0.1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("training.rounds", "expected PATH=VALUE"),
        ("=3", "expected a dotted path"),
        ("training.rounds=[1", "not YAML"),
        ("fleet.2.share=1", "fleet is a list: expected an index from 0 to 1, found '2'"),
        ("training.rounds.more=1", "training.rounds is 60, which has no keys"),
    ],
)
def test_a_wrong_override_names_itself_and_what_was_expected(text, expected):
    with pytest.raises(UserError, match="--set") as caught:
        changed(text)
    assert expected in str(caught.value)
    assert text.splitlines()[0] in str(caught.value)


paths = st.lists(st.sampled_from("abcde"), min_size=1, max_size=4).map(".".join)
values = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.lists(st.integers(), max_size=3))


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.sampled_from("abc"), st.none())), paths, values)
def test_an_override_sets_its_path_changes_nothing_else_and_leaves_its_input_alone(data, path, value):
    before = copy.deepcopy(data)
    result = overridden(data, parse_overrides({path: value}))
    assert data == before
    found = result
    for name in path.split("."):
        found = found[name]
    assert found == value
    first = path.split(".")[0]
    assert {key: inner for key, inner in result.items() if key != first} == {
        key: inner for key, inner in before.items() if key != first
    }


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("data.clients=5", "training.cohort: expected at most data.clients (5), found 10"),
        ("model.name=char_transformer", "model.norm: unknown key"),
        ("methods=[stochdepth]", "methods.0: StochasticDepth needs residual blocks"),
        ("network.topology={kind: file, file: /nowhere.json}", "network.topology: expected a file at '/nowhere.json'"),
    ],
)
def test_what_an_override_breaks_is_the_overrides_fault(change, complaint):
    with pytest.raises(UserError) as raised:
        rehearse(load_scenario("5g_100clients", [change]), file="5g_100clients", overrides=[change])
    assert str(raised.value).startswith(f"--set {change}: {complaint}")


def test_what_no_override_touched_is_the_files_fault():
    changes = parse_overrides(["seeds=[1]"])
    error = UserError("expected 1 or more, found 0", field="training.rounds")
    assert str(blamed(error, changes, "mine.yaml")) == "mine.yaml: training.rounds: expected 1 or more, found 0"


@pytest.fixture
def own_files(tmp_path, monkeypatch):
    """A scenario with arrays and a trace of its own, in the working directory."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("data.npz", x=rng.normal(size=(80, 4)), y=rng.integers(0, 3, 80), client=np.arange(80) % 8)
    np.savez("no_labels.npz", x=rng.normal(size=(80, 4)))
    Path("trace.csv").write_text("time,rate\n0,5\n1,6\n2,5\n", encoding="utf-8")
    trace = {"kind": "trace", "file": "trace.csv", "format": {"time": "time", "rate": "rate", "unit": "Mbit/s"}}
    data = {"name": "arrays", "train": "data.npz", "clients": 8, "partition": {"kind": "natural"}}
    network = {**SMALL["network"], "links": {"5g": {"down": trace, "up": "5 Mbit/s"}}}
    whole = {**SMALL, "data": data, "model": {"name": "mlp", "widths": [4]}, "network": network}
    Path("mine.yaml").write_text(dump_yaml(whole), encoding="utf-8")


@pytest.mark.full
@pytest.mark.parametrize(
    ("change", "other", "field"),
    [
        ("data.target=nope", "data.clients=8", "data"),
        ("data.inputs=[x, nope]", "data.clients=8", "data"),
        ("data.train=no_labels.npz", "data.clients=8", "data"),
        ("data.kind=images", "data.clients=8", "data"),
        ("data.test=nope.npz", "data.clients=8", "data.test_data"),
        (
            "network.links.5g.down.format.rate=nope",
            "network.links.5g.down.format.time=time",
            "network.links.5g.down.file",
        ),
        ("fleet.0.availability.kid=trace", "fleet.0.share=0.5", "fleet.0.availability.kind"),
    ],
)
def test_of_several_changes_the_one_that_is_wrong_is_named(own_files, change, other, field):
    with pytest.raises(UserError) as raised:
        rehearse(load_scenario("mine.yaml", [change, other]), file="mine.yaml", overrides=[change, other])
    assert (raised.value.file, raised.value.field) == (f"--set {change}", field)


@pytest.mark.full
@pytest.mark.parametrize("command", ["plan", "schedule", "data show", "scenario validate", "simulate"])
@pytest.mark.parametrize("change", ["data.train=nope.npz", "data.target=nope"])
def test_every_command_names_the_change_and_the_whole_path(own_files, capsys, command, change):
    assert main([*command.split(), "mine.yaml", "--set", change, "--set", "data.clients=8"]) == 2
    place = "data.train" if "train" in change else "data"
    assert capsys.readouterr().err.startswith(f"error: --set {change}: {place}: ")


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ("training.selection.kid=uniform", "did you mean 'kind'?"),
        ("model.nmae=cnn", "did you mean 'name'?"),
        ("methods.0.metod=fedavg", "did you mean 'method'?"),
        ("training.bandwidth.kid=equal", "'kid' is unknown: did you mean 'kind'?"),
        ("training.selection={kid: oort}", "'kid' is unknown: did you mean 'kind'?"),
        ("failures=[{kid: crash}]", "'kid' is unknown: did you mean 'kind'?"),
        ("data.feature_skew.kid=noise", "'kid' is unknown: did you mean 'kind'?"),
        ("model={nmae: cnn}", "'nmae' is unknown: did you mean 'name'?"),
    ],
)
def test_a_misspelt_key_that_names_a_part_is_found(change, hint):
    with pytest.raises(UserError, match=re.escape(f"--set {change}: ")) as raised:
        load_scenario("5g_100clients", [change])
    assert hint in str(raised.value)
