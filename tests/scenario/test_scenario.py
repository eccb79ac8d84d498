"""A scenario: defaults, what it resolves to, and how its sections must fit together."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edgefl
from edgefl.errors import UserError
from edgefl.fleet import DeviceProfile, load_profile
from edgefl.methods.recipe import METHODS
from edgefl.scenario import load_scenario, resolve, with_overrides
from edgefl.scenario.loading import check
from edgefl.scenario.methods import read_methods
from edgefl.simulation.accounts import BudgetSpec
from edgefl.yaml_file import dump_yaml, parse_yaml

from ..small_runs import SMALL


@pytest.fixture(scope="module")
def shipped():
    return load_scenario("5g_100clients")


def reloaded(scenario):
    return check(parse_yaml(dump_yaml(resolve(scenario))))


def test_the_resolved_scenario_holds_every_profile_and_needs_no_other_file(shipped):
    data = resolve(shipped)
    assert all(isinstance(group["profile"], dict) for group in data["fleet"])
    assert DeviceProfile.model_validate(data["fleet"][0]["profile"]) == load_profile("raspberry-pi-4")
    assert json.loads(json.dumps(data)) == data
    assert set(data) == set(type(shipped).model_fields), "every key stands there, whether the file had it or not"
    assert data["evaluation"]["every"] == 1


def test_the_resolved_scenario_reads_back_equal_and_resolves_to_itself(shipped):
    again = reloaded(shipped)
    assert again == shipped
    assert dump_yaml(resolve(again)) == dump_yaml(resolve(shipped))


@pytest.fixture(scope="module")
def little():
    return check({**SMALL, "data": {**SMALL["data"], "partition": {"kind": "label_level", "level": 3}}})


@settings(max_examples=6, deadline=None)
@given(
    lr=st.floats(1e-12, 1e12),
    level=st.integers(1, 4),
    cohort=st.integers(1, 8),
    deadline=st.none() | st.floats(1e-6, 1e9),
    joules=st.none() | st.floats(1e-3, 1e15),
    targets=st.lists(st.floats(0.01, 1), unique=True, max_size=3),
)
def test_any_legal_values_survive_the_round_trip(little, lr, level, cohort, deadline, joules, targets):
    changed = with_overrides(
        little,
        {
            "training.local.lr": lr,
            "training.cohort": cohort,
            "data.partition.level": level,
            "protocol.deadline": deadline,
            "budgets.joules": joules,
            "targets": targets,
        },
    )
    assert changed.training.local.lr == lr
    assert reloaded(changed) == changed


def test_a_block_scheduler_is_split_off_and_defaults_to_the_methods_own():
    default, fixed = read_methods(["fedbr", {"method": "fedbr", "as": "f", "scheduler": {"kind": "fixed", "alpha": 3}}])
    assert default.scheduling.name == "gmbs"
    assert (fixed.scheduling.name, fixed.scheduler.alpha) == ("fixed", 3)
    assert "scheduler" not in fixed.entry
    (plain,) = read_methods(["fedavg"])
    assert plain.scheduler is None


def test_targets_and_budgets_may_be_left_out_null_or_empty(shipped):
    for nothing in (None, {}):
        assert with_overrides(shipped, {"budgets": nothing}).budgets == BudgetSpec()
    for nothing in (None, []):
        assert with_overrides(shipped, {"targets": nothing}).targets == ()
    data = resolve(shipped)
    del data["targets"], data["budgets"]
    bare = check(data)
    assert (bare.targets, bare.budgets.limits()) == ((), {})


def test_a_run_that_stops_at_targets_needs_one(shipped):
    with pytest.raises(UserError, match="targets"):
        with_overrides(shipped, {"stop": "target", "targets": []})


def test_other_seeds_are_checked_too(shipped):
    assert shipped.with_seeds([7]).seeds == (7,)
    assert shipped.with_seeds([7]).fleet == shipped.fleet
    with pytest.raises(UserError, match=r"seeds\.0"):
        shipped.with_seeds([-1])


def test_a_method_is_found_by_its_label(shipped):
    assert shipped.method("fedbr").name == "fedbr"
    with pytest.raises(UserError, match="did you mean 'fedprox'"):
        shipped.method("fedprx")


def test_the_schema_accepts_the_shipped_file_and_names_every_method(shipped):
    schema = edgefl.scenario.json_schema()
    assert set(schema["properties"]) == set(resolve(shipped))
    named = json.dumps(schema["properties"]["methods"])
    assert all(f'"const": "{name}"' in named for name in METHODS.names())
    for reference in references(schema):
        found = schema
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]


def references(schema):
    """Every $ref of a schema."""
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for inner in schema.values():
            yield from references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from references(inner)


class TestFiles:
    """Relative paths in a scenario."""

    @pytest.fixture
    def folder(self, tmp_path, shipped):
        (tmp_path / "there").mkdir()
        profile = resolve(shipped)["fleet"][0]["profile"] | {"name": "mine"}
        (tmp_path / "there" / "mine.yaml").write_text(dump_yaml(profile))
        (tmp_path / "there" / "trace.csv").write_text("0,1000\n1,2000\n")
        data = resolve(shipped)
        data["fleet"][0]["profile"] = "./mine.yaml"
        data["data"]["root"] = "images"
        data["network"]["links"]["5g"] = {
            "down": {"kind": "trace", "file": "trace.csv", "format": "csv"},
            "up": "1 Mbit/s",
        }
        (tmp_path / "there" / "my.yaml").write_text(dump_yaml(data))
        return tmp_path

    def test_they_start_at_the_scenarios_folder(self, folder, monkeypatch):
        monkeypatch.chdir(folder)
        scenario = load_scenario("there/my.yaml")
        assert scenario.fleet[0].profile.name == "mine"
        assert Path(scenario.data.root) == folder / "there" / "images"
        assert Path(scenario.network.links["5g"].down.file) == folder / "there" / "trace.csv"
        assert reloaded(scenario) == scenario

    def test_those_in_overrides_start_at_the_working_directory(self, folder, monkeypatch):
        monkeypatch.chdir(folder)
        (folder / "here.yaml").write_text((folder / "there" / "mine.yaml").read_text().replace("mine", "here"))
        scenario = load_scenario("there/my.yaml", ["fleet.1.profile=./here.yaml", "data.root=pictures"])
        assert scenario.fleet[1].profile.name == "here"
        assert Path(scenario.data.root) == folder / "pictures"

    def test_a_file_that_is_not_beside_the_scenario_is_left_to_the_data_folder(self, folder, monkeypatch):
        monkeypatch.chdir(folder)
        scenario = load_scenario("there/my.yaml", ["network.links.5g.down.file=traces/other.csv"])
        assert scenario.network.links["5g"].down.file == "traces/other.csv"

    def test_a_shipped_name_works_from_anywhere_and_a_file_of_that_name_comes_first(self, folder, monkeypatch, shipped):
        monkeypatch.chdir(folder)
        assert load_scenario("5g_100clients") == shipped
        (folder / "5g_100clients").write_text(dump_yaml(resolve(shipped) | {"name": "mine"}))
        assert load_scenario("5g_100clients").name == "mine"


def test_overlap_is_refused_where_the_next_cohort_cannot_be_known_early(shipped):
    overlap = [{"method": "fedadc", "overlap": True}]
    with pytest.raises(UserError, match=r"methods\.0\.overlap: overlap needs a cohort .* 'oort' reads its results"):
        with_overrides(shipped, {"methods": overlap, "training.selection": "oort"})
    # Asynchronous runs pick at any time, with what has been heard by then.
    asynchronous = {"methods": overlap, "training.selection": "oort", "protocol": {"kind": "asynchronous"}}
    assert with_overrides(shipped, asynchronous).protocol.kind == "asynchronous"


def test_a_removed_option_names_what_replaces_it_and_is_ignored_where_it_had_no_effect(small):
    """Run directories contain every option of their build."""
    data = resolve(small())
    data["network"]["transport"] |= {"queue_spread": 0.4, "window": None, "restart_idle": True}
    assert check(data) == small()
    for change, message in (
        ("network.transport.loss=0.01", "network.transport.loss: this option was removed; instead: links"),
        ("data.feature_skew={kind: shift}", "the choice 'shift' was removed; instead: noise"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            load_scenario("5g_10clients", [change])
