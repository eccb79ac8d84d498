"""Methods built from scenario entries: where options go, what is merged, what is refused."""

from __future__ import annotations

import json

import pytest
import torch

from edgefl.errors import UserError
from edgefl.methods.build import RESERVED, build_method, method_model
from edgefl.methods.fedavgm import FedAvgM
from edgefl.methods.feddyn import FedDyn
from edgefl.methods.fedmlb import FedMLB
from edgefl.methods.fedprox import FedProx
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.recipe import METHODS

LOCAL = LocalOptions(epochs=2, batch=20, lr=0.2, clip_norm=10)


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_can_be_built_by_its_name_alone(name) -> None:
    method = build_method(name, LOCAL)
    assert method.name == method.label == name
    assert method.local.model_copy(update={"common_finish": None}) == LOCAL
    assert method.local.common_finish == METHODS[name].common_finish
    assert METHODS[name].summary
    assert METHODS[name].paper
    json.dumps(method_model(METHODS[name]).model_json_schema())


@pytest.mark.parametrize("name", METHODS.names())
def test_options_that_parts_share_have_one_default_and_one_meaning(name) -> None:
    recipe = METHODS[name]
    seen: dict[str, tuple[object, str | None]] = {}
    for part in (recipe.objective, recipe.rule, type(recipe.server), recipe.payload):
        for option, info in part.model_fields.items():
            assert option not in RESERVED
            assert info.description
            assert seen.setdefault(option, (info.default, info.description)) == (info.default, info.description)


def test_an_option_goes_to_every_part_that_has_it() -> None:
    method = build_method({"method": "fedadc", "beta_l": 0.5, "variant": "blue", "overlap": True}, LOCAL)
    assert method.rule.beta_l == method.server.beta_l == method.payload.beta_l == 0.5
    assert method.server.beta_g == method.payload.beta_g == 0.8
    assert method.rule.variant == "blue"
    assert method.overlap


def test_a_label_and_a_server_make_a_variant_of_a_method() -> None:
    entry = {"method": "fedmlb", "server": {"kind": "fedavgm", "beta": 0.6}, "as": "fedmlb+m", "lambda_1": 0.5}
    method = build_method(entry, LOCAL)
    assert (method.name, method.label) == ("fedmlb", "fedmlb+m")
    assert method.server == FedAvgM(beta=0.6)
    assert method.objective == FedMLB(lambda_1=0.5)


def test_a_server_brings_its_paper_s_weights_unless_the_entry_says_others() -> None:
    assert build_method("fedprox", LOCAL).weighting == "samples"
    assert build_method({"method": "fedprox", "server": "slowmo"}, LOCAL).weighting == "uniform"
    assert build_method({"method": "fedprox", "server": "slowmo", "weighting": "samples"}, LOCAL).weighting == "samples"
    assert build_method("fedadc", LOCAL).weighting == build_method("fedbr", LOCAL).weighting == "uniform"


def test_local_options_of_a_method_replace_the_scenario_s_one_by_one() -> None:
    method = build_method({"method": "fedavg", "local": {"lr": 0.05}}, LOCAL)
    assert method.local == LocalOptions(epochs=2, batch=20, lr=0.05, clip_norm=10)
    assert build_method({"method": "fedavg", "local": {"clip_norm": None}}, LOCAL).local.clip_norm is None
    assert build_method({"method": "fedavg", "local": {"steps": 3}}, LOCAL).local.steps_for(100) == 3
    many = LocalOptions(steps=50, batch=20)
    assert build_method({"method": "fedavg", "local": {"epochs": 1}}, many).local.steps_for(100) == 5


def test_feddyn_s_server_brings_penalty_and_memory_to_any_method() -> None:
    method = build_method({"method": "fedmlb", "server": {"kind": "feddyn", "alpha": 0.2}}, LOCAL)
    assert method.objective == FedDyn(base=FedMLB(), alpha=0.2)
    assert method.state is not None
    assert method.state.vectors == ("drift",)
    both = build_method({"method": "moon", "server": "feddyn"}, LOCAL)
    assert both.objective.frozen == {"received", "previous"}
    first = both.state.first(torch.arange(5.0), 3)
    assert {name: vector.tolist() for name, vector in first.items()} == {"previous": [0, 1, 2, 3, 4], "drift": [0] * 3}
    after = both.state.after(first, torch.arange(5.0), torch.ones(5), 0.1, 4)
    assert after["previous"].tolist() == [1] * 5
    assert after["drift"].tolist() == [1, 0, -1]


def test_fedbr_that_always_sends_the_whole_model_may_have_any_server() -> None:
    method = build_method({"method": "fedbr", "full_every": 1, "server": "feddyn"}, LOCAL)
    assert method.state.vectors == ("previous", "drift")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("fedavgg", "did you mean 'fedavg'"),
        ({"mu": 1}, "method: this key is missing"),
        ({"method": "fedmlb", "temprature": 1}, "temprature: unknown key; did you mean 'temperature'"),
        ({"method": "fedprox", "mu": -1}, "mu: expected 0 or more"),
        ({"method": "fedavg", "server": {"kind": "fedavgm", "bta": 1}}, "did you mean 'beta'"),
        ({"method": "fedavg", "local": {"learning_rate": 1}}, "local.learning_rate"),
        ({"method": "fedadc", "server": "mean"}, "reads 'momentum', which server update 'mean' does not send"),
        ({"method": "fedadc", "server": {"kind": "fedadc", "beta_l": 0.3}}, "next to 'method'"),
        ({"method": "fedadc", "local": {"momentum": 0.9}}, "local steps without momentum, and local.momentum is 0.9"),
        ({"method": "scaffold", "server": "mean"}, "reads 'client_control'"),
        ({"method": "fedavg", "server": "scaffold"}, "do not read the 'control'"),
        ({"method": "fedbr", "server": "feddyn"}, "only some blocks"),
        ({"method": "fedgkd", "server": "fedadam"}, "teacher"),
        ({"method": "fedavgm", "beta": 0.5, "server": "mean"}, "option of the server update 'fedavgm'"),
    ],
)
def test_nonsense_is_refused_with_the_reason(entry, message) -> None:
    with pytest.raises(UserError, match=message):
        build_method(entry, LOCAL)


def test_a_loss_that_reads_a_fact_about_its_client_that_does_not_exist_is_refused(monkeypatch):
    monkeypatch.setattr(FedProx, "client", frozenset({"label_count"}))
    with pytest.raises(
        UserError, match="FedProx reads the fact 'label_count' about its client; did you mean 'label_cou"
    ):
        build_method("fedprox", LocalOptions())
