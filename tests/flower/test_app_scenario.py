"""Scenarios with the key ``flower``: what they accept and what they refuse, without the package flwr."""

import json
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.flower.app import digest_of_app, require_flwr
from edgefl.flower.scenario import AppScenario, AppSpec, flat, load_any_scenario
from edgefl.scenario import Scenario, load_scenario, resolve
from edgefl.scenario.overrides import what_decides
from edgefl.validation import validated
from edgefl.yaml_file import dump_yaml

from .runs import APPS, world


def read(**keys):
    return validated(AppScenario, world(**keys))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"training": {"rounds": 3}}, "training: a Flower app decides this itself; remove the key"),
        ({"data": {"name": "digits", "clients": 4}}, "data.name: a Flower app has data of its own"),
        ({"flower": {"app": "a", "run_conf": {}}}, "flower.run_conf: unknown key; did you mean 'run_config'?"),
        ({"methods": [{"as": "a"}, {"as": "A"}]}, "methods.1: expected different methods"),
        ({"methods": ["fedavg"]}, "methods.0: "),
        ({"stop": "target"}, "targets: expected at least one target because of stop: target"),
        ({"seeds": [1, 1]}, "seeds.1: expected different seeds, found 1 twice"),
        ({"fleet": [{"profile": "raspberry-pi-5", "share": 1, "link": "5g"}]}, "no link '5g' in network.links"),
    ],
)
def test_wrong_scenarios_are_refused_in_one_sentence(keys, message):
    with pytest.raises(UserError) as caught:
        read(**keys)
    assert message in str(caught.value)


def test_a_resolved_scenario_is_read_back_as_an_equal_one(tmp_path):
    scenario = read(flower={"app": "/apps/a", "run_config": {"model": {"width": 8}, "fast": True}, "seconds": "2 s"})
    assert scenario.flower.run_config == {"model.width": 8, "fast": True}
    assert scenario.flower.seconds.of("train.again") == scenario.flower.seconds.of("get_parameters") == 2
    (tmp_path / "scenario.yaml").write_text(dump_yaml(resolve(scenario)))
    assert load_any_scenario(tmp_path / "scenario.yaml") == scenario


def test_the_place_of_an_app_does_not_decide_results_but_its_configuration_does():
    here, there = (what_decides(resolve(read(flower={"app": place}))) for place in ("/a", "/b"))
    assert here == there
    assert here != what_decides(resolve(read(flower={"app": "/a", "run_config": {"lr": 1}})))


def test_other_commands_refuse_the_scenario_by_name(tmp_path):
    (tmp_path / "app.yaml").write_text(dump_yaml(world()))
    with pytest.raises(UserError, match="flower: this scenario runs a Flower app; only simulate, scenario validate"):
        load_scenario(tmp_path / "app.yaml")
    assert isinstance(load_any_scenario("5g_100clients"), Scenario)


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr", None)
    with pytest.raises(UserError, match=r"python -m pip install -e '\.\[flower\]'"):
        require_flwr()


def test_the_digest_of_an_app_changes_with_its_code_and_with_nothing_else(tmp_path):
    (tmp_path / "app.py").write_text("a = 1")
    one = digest_of_app(str(tmp_path))
    (tmp_path / "data.bin").write_bytes(b"1")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "app.py").write_text("b")
    assert digest_of_app(str(tmp_path)) == one
    (tmp_path / "app.py").write_text("a = 2")
    assert digest_of_app(str(tmp_path)) != one
    with pytest.raises(UserError, match="no such folder"):
        digest_of_app(str(tmp_path / "missing"))


@settings(max_examples=30)
@given(st.recursive(st.integers(), lambda inner: st.dictionaries(st.text("ab", min_size=1), inner, max_size=3)))
def test_flattened_tables_have_one_key_for_each_value(value):
    def leaves(each):
        return sum(map(leaves, each.values())) if isinstance(each, dict) else 1

    found = flat({"x": value})
    assert len(found) == leaves({"x": value})
    assert all(not isinstance(each, dict) for each in found.values())


def test_methods_override_the_configuration_of_the_scenario():
    scenario = read(
        flower={"app": str(APPS / "current"), "run_config": {"lr": 1, "local-steps": 3}},
        methods=[{"as": "a", "run_config": {"lr": 2}}, {"as": "b", "app": str(APPS / "legacy")}],
    )
    one, two = (scenario.app_of(method) for method in scenario.methods)
    assert one == AppSpec(app=str(APPS / "current"), run_config={"lr": 2, "local-steps": 3})
    assert two.app == str(APPS / "legacy")


def test_the_schema_of_scenario_files_describes_apps():
    from edgefl.flower.scenario import json_schema_of_any

    schema = json_schema_of_any()
    assert schema["if"] == {"required": ["flower"]}
    assert schema["then"]["properties"].keys() == AppScenario.model_fields.keys()
    assert "model" in schema["else"]["required"]
    assert schema["$defs"]["AppSpec"]["properties"].keys() == AppSpec.model_fields.keys()
    referred = set(re.findall(r"#/\$defs/([^\"]+)\"", json.dumps(schema)))
    assert referred <= schema["$defs"].keys()


@pytest.mark.flower
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num-server-rounds": "two"}, "num-server-rounds: expected a whole number, as the app's own 3, found 'two'"),
        ({"num-server-rounds": 2.5}, "expected a whole number"),
        ({"num-server-rounds": True}, "expected a whole number"),
        ({"num": {"server-rounds": 3}}, "the app has no such key"),
    ],
)
def test_a_value_of_another_type_than_the_apps_is_refused_by_validate(tmp_path, capsys, given, message):
    pytest.importorskip("flwr")
    (tmp_path / "app.yaml").write_text(dump_yaml(world(flower={"app": str(APPS / "current"), "run_config": given})))
    assert main(["scenario", "validate", str(tmp_path / "app.yaml")]) == 2
    assert message in capsys.readouterr().err
