"""A plan says beforehand what a run will then spend."""

import json
import re
from collections import Counter
from dataclasses import asdict

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from edgefl.cli.entry import app
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.planning import training_time
from edgefl.planning.observation import _notes as plan_notes
from edgefl.planning.planning import plan, planned_rounds
from edgefl.planning.training_time import training_times
from edgefl.report.timeline.data import read_timeline
from edgefl.report.timeline.usage import bottleneck_counts, bottlenecks_of
from edgefl.scenario import load_scenario
from edgefl.training.job import NeutralLearner
from edgefl.yaml_file import dump_yaml

from ..small_runs import SMALL, TCP


def means(folder, label, rounds=None):
    table = pq.read_table(folder / label / "seed-0" / "rounds.parquet").slice(0, rounds)
    columns = {
        name: table.column(name).to_pylist() for name in ("seconds", "bytes_down", "bytes_up", "joules", "flops")
    }
    count = len(table)
    return {
        "seconds": columns.pop("seconds")[-1] / count,
        **{name: sum(each) / count for name, each in columns.items()},
    }


METHODS = ["fedavg", {"method": "fedadc", "overlap": True}]


EVALUATED = {"evaluation": {"on": "clients"}}


@pytest.mark.parametrize("changes", [{}, {"network__transport": TCP}, EVALUATED], ids=["fluid", "TCP", "evaluated"])
def test_a_round_costs_what_the_run_then_spends_on_it_and_fewer_rounds_are_its_first(small, tmp_path, changes):
    scenario = small(methods=METHODS, training__rounds=8, **changes)
    run(scenario, out=tmp_path / "run", train=False)
    for each in plan(scenario).methods:
        assert each.rounds == 8
        for name, nominal in means(tmp_path / "run", each.label).items():
            figure = each.joules.nominal if name == "joules" else getattr(each, name)
            assert figure == pytest.approx(nominal, rel=1e-9), name
        assert each.joules.low < each.joules.nominal < each.joules.high
    for each in plan(scenario, rounds=5).methods:
        # With what these rounds send ahead.
        spent = means(tmp_path / "run", each.label, rounds=5)
        assert (each.rounds, each.seconds, each.bytes_down) == pytest.approx((5, spent["seconds"], spent["bytes_down"]))


@pytest.mark.full
def test_the_shipped_scenarios_plan_is_its_run_although_budgets_end_it(tmp_path):
    scenario = load_scenario("5g_100clients").with_seeds([0])
    labels = ["fedadc", "fedbr"]
    run(scenario, out=tmp_path / "run", methods=labels, train=False)
    for each in plan(scenario, methods=labels).methods:
        spent = means(tmp_path / "run", each.label)
        assert (each.seconds, each.bytes_down, each.bytes_up) == pytest.approx(
            (spent["seconds"], spent["bytes_down"], spent["bytes_up"]), rel=1e-9
        )


def test_seconds_of_participations_that_are_cut_off_do_not_shorten_the_others(small):
    links = {"network__links": {"5g": {"down": "8 Mbit/s", "up": "8 Mbit/s"}}, "network__topology__latency": 0}
    board = {"profile": "raspberry-pi-4", "share": 1, "link": "5g"}
    fleets = [[{**board, "dropout": each}] for each in (0, 0.5)]
    whole, some = (plan(small(fleet=each, **links)).methods[0].devices[0] for each in fleets)
    assert 0.2 < some.lost["dropped"] < 0.9
    assert asdict(some.compute_seconds) == pytest.approx(asdict(whole.compute_seconds))
    assert (some.download_seconds, some.upload_seconds) == pytest.approx((whole.download_seconds, whole.upload_seconds))
    middle = whole.download_seconds + whole.compute_seconds.nominal + 0.5 * whole.upload_seconds
    late = plan(small(fleet=fleets[0], protocol__deadline=middle, **links)).methods[0].devices[0]
    assert (late.lost, late.upload_seconds) == ({"late": 1.0}, pytest.approx(whole.upload_seconds, rel=1e-3))


def test_the_parts_of_a_participation_are_reading_and_the_framework(small):
    pipeline = {"training__local__input": {"seconds": "1 ms"}}  # for each of a client's 40 images
    (method,) = plan(small(round_overhead="flower", **pipeline)).methods
    board, slower = method.devices
    plain = plan(small()).methods[0].devices[0]
    assert (board.reading_seconds, board.framework_seconds) == pytest.approx((0.04, 13.4 + 14.5))
    assert board.compute_seconds.nominal == pytest.approx(plain.compute_seconds.nominal + 0.04)
    assert (plain.reading_seconds, plain.framework_seconds) == (0, 0)
    assert slower.framework_seconds == pytest.approx(13.4 + 14.5 / 0.8)  # its core_speed
    assert method.holds_back == "waiting for the framework (4 of 4 rounds)"
    once = plan(small(round_overhead={"first": "8 s"}, training__cohort=8)).methods[0].devices[0]
    assert once.framework_seconds == pytest.approx(8 / 4)  # all take part in all rounds


def test_a_participation_costs_the_same_whether_clients_evaluate_after_it_or_not(small):
    links = {"network__links": {"5g": {"down": "8 Mbit/s", "up": "8 Mbit/s"}}}
    plain, evaluated = (plan(small(**links, **more)).methods[0] for more in ({}, EVALUATED))
    for one, other in zip(plain.devices, evaluated.devices, strict=True):
        assert asdict(other.joules) == pytest.approx(asdict(one.joules))
        assert (other.bytes_down, other.bytes_up, other.lost) == (one.bytes_down, one.bytes_up, one.lost)
        assert (other.download_seconds, other.upload_seconds) == pytest.approx(
            (one.download_seconds, one.upload_seconds)
        )
    model = plain.devices[0].bytes_down
    assert evaluated.bytes_down == pytest.approx(plain.bytes_down + 8 * model)
    assert evaluated.bytes_up == pytest.approx(plain.bytes_up + 8 * 8)


def test_a_grid_has_a_row_for_each_setting_and_method_with_the_figures_of_their_plan(tmp_path):
    data = {**SMALL, "methods": ["fedavg", "fedalign"], "budgets": {"seconds": 10}}
    data["fleet"] = [*SMALL["fleet"][:1], {**SMALL["fleet"][1], "overrides": {"memory": {"training": "35 kB"}}}]
    file = tmp_path / "small.yaml"
    file.write_text(dump_yaml(data))
    options = ["--grid", "model=[{name: cnn, width: 2}, mlp]", "--grid", "training.local.batch=4,16"]
    result = CliRunner().invoke(app, ["plan", str(file), *options, "--json"])
    assert result.exit_code == 0, result.output
    settings = json.loads(result.stdout)["settings"]
    assert [list(each["refused"]) for each in settings] == [[], [], ["fedalign"], ["fedalign"]]
    alone = plan(load_scenario(file, ["model=mlp", "training.local.batch=16"]), methods=["fedavg"], rounds=4)
    assert settings[3]["plan"] == json.loads(json.dumps(asdict(alone)))
    shown = CliRunner().invoke(app, ["plan", str(file), *options], env={"COLUMNS": "100"}).stdout
    assert re.search(r"^cnn, width 2 +16 +fedalign .* 4/4 jetson-nano$", shown, re.MULTILINE)
    wrong = CliRunner().invoke(app, ["plan", str(file), "--grid", "training.local.bach=4,16"])
    assert isinstance(wrong.exception, UserError)


def test_a_device_without_the_memory_cannot_take_part_and_the_plan_says_why(small):
    scenario = small(**{"fleet.0.overrides": {"memory": {"training": "10 kB"}}})
    (method,) = plan(scenario).methods
    tiny, large = method.devices
    assert (tiny.refused, tiny.participations) == (tiny.clients, 0)
    assert "10 kB" in tiny.why or "0.010 MB" in tiny.why
    assert (large.refused, large.why) == (0, None)
    assert method.participants < 3


def test_a_budget_reaches_as_far_as_the_run_that_it_ends(small, tmp_path):
    changes = {"training__rounds": 12, "budgets": {"bytes": "40 kB"}, "stop": "budget"}
    scenario = small(**changes)
    run(scenario, out=tmp_path / "run", train=False)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    made = plan(scenario)
    (method,) = made.methods
    (budget,) = method.budgets
    stopped = summary["methods"]["fedavg"][0]["stop"]
    assert stopped["reason"] == "bytes"
    assert (budget.rounds, budget.lasts, budget.foreseen) == (stopped["round"], False, False)
    assert method.rounds == budget.rounds
    assert any(f"means over {budget.rounds} of 12 simulated rounds" in line for line in plan_notes(made))


def test_a_budget_beyond_the_planned_rounds_is_reached_by_their_means(small):
    scenario = small(training__rounds=1000, budgets={"bytes": "200 kB"}, stop="rounds")
    (method,) = plan(scenario, rounds=4).methods
    (budget,) = method.budgets
    assert budget.foreseen
    assert budget.rounds == int(2e5 / (method.bytes_down + method.bytes_up))


@pytest.mark.full
@pytest.mark.parametrize(
    ("transport", "named"),
    [
        ({}, "computing on jetson-nano (39 of 40 rounds)"),
        pytest.param(
            {"kind": "tcp"},
            "downloads (37 of 40 rounds), most often over the TCP connection (round trips, window) (36)",
            marks=pytest.mark.full,
        ),
    ],
    ids=["fluid", "tcp"],
)
def test_what_limits_rounds_in_a_plan_is_what_the_page_of_its_run_names_first(small, tmp_path, transport, named):
    scenario = small(training__rounds=40, network__transport=transport)
    folder = run(scenario, out=tmp_path / "run", train=False)
    limits = bottlenecks_of(read_timeline(folder / "fedavg" / "seed-0"))
    (limit, count), *_ = bottleneck_counts(limits)
    (method,) = plan(scenario).methods
    assert method.holds_back == named
    phases = Counter(each.phase for each in limits)
    assert phases[limit.phase] == max(phases.values())
    assert limit.name in named
    assert str(count) in named
    assert f"({phases[limit.phase]} of 40 rounds)" in named


def test_over_fast_links_rounds_wait_for_computing_and_over_a_narrow_server_transfers_for_each_other(small):
    fast = small(network__links={"5g": {"down": "1 Tbit/s", "up": "1 Tbit/s"}}, network__topology__latency=0)
    assert plan(fast).methods[0].holds_back.startswith("computing on ")
    made = plan(small(evaluation={"on": "both"}, training__server="rp2040-board"))
    assert made.methods[0].holds_back == "waiting for the server (4 of 4 rounds)"
    assert 0 < made.methods[0].evaluation_seconds < made.methods[0].server_seconds < made.methods[0].seconds
    assert " by the server and " in plan_notes(made)[0]
    server = {"down": "50 kbit/s", "up": "100 Mbit/s"}
    (method,) = plan(small(network__topology__server=server)).methods
    assert method.holds_back == "downloads over the link server → internet (4 of 4 rounds)"


LITTLE_MEMORY = {"profile": "raspberry-pi-5", "share": 1, "link": "5g", "overrides": {"memory": {"training": "1 kB"}}}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"protocol__deadline": "1 ms"}, "no update arrives in 4 rounds: 12 were late"),
        ({"fleet": [LITTLE_MEMORY]}, "no update arrives in 4 rounds: 12 were refused (not enough memory)"),
        (
            {"protocol__deadline": "1 ms", "training__rounds": 30},
            "the run stalls after 10 rounds: no update arrived in 10 consecutive rounds: 30 were late",
        ),
    ],
)
def test_where_no_update_arrives_the_plan_says_why_and_no_budget_lasts(small, changes, told):
    (method,) = plan(small(budgets={"seconds": 60, "bytes": "1 GB"}, **changes)).methods
    assert (method.in_vain, method.holds_back, method.aggregated) == (told, None, 0)
    assert method.budgets == ()


@pytest.mark.parametrize(
    ("place", "direction"),
    [("network.links.5g", "up"), pytest.param("network.topology.server", "down", marks=pytest.mark.full)],
)
def test_nothing_arrives_over_a_link_without_capacity(small, tmp_path, place, direction):
    small()
    changed = ["plan", str(tmp_path / "small.yaml"), "--set", f"{place}.{direction}=0"]
    result = CliRunner().invoke(app, changed)
    assert result.exit_code == 0
    sentence = "all active transfers are on links with zero capacity"
    assert sentence in " ".join(result.output.split())
    assert "nan" not in result.output.split()
    (method,) = json.loads(CliRunner().invoke(app, [*changed, "--json"]).output, parse_constant=pytest.fail)["methods"]
    assert (method["rounds"], method["seconds"], method["holds_back"]) == (0, None, None)


def test_rounds_that_only_a_deadline_closes_wait_for_those_who_miss_it(small, tmp_path):
    # Half of the clients have no link to speak of: whoever is picked with one of them waits until the deadline.
    slow = {"profile": "raspberry-pi-4", "share": 0.5, "link": "slow"}
    fast = {"profile": "raspberry-pi-4", "share": 0.5, "link": "5g"}
    links = {"network__links__slow": {"down": "1 bit/s", "up": "1 bit/s"}}
    (method,) = plan(small(fleet=[slow, fast], protocol__deadline="10 s", training__cohort=8, **links)).methods
    assert (method.in_vain, method.aggregated, method.seconds) == (None, 4, pytest.approx(10))
    assert method.holds_back == "clients that return no update (16 late)"


def test_nothing_is_trained(small, monkeypatch):
    scenario = small()
    asked = []
    monkeypatch.setattr(NeutralLearner, "submit", lambda self, job: asked.append(job))
    monkeypatch.setattr("edgefl.data.federated.load_federated", None)
    plan(scenario)
    assert asked


def test_the_number_of_rounds_shrinks_with_cohort_and_methods(small):
    scenario = small(training__rounds=5000)
    assert [planned_rounds(scenario, methods) for methods in (1, 10, 1000)] == [1000, 100, 5]


@pytest.mark.full
def test_a_plan_counts_the_attempts_that_break_and_their_waits(small, tmp_path):
    """The transfers of the first rounds meet an outage of half a second; attempts break after 0.2 s without a byte."""
    (tmp_path / "outage.csv").write_text("seconds,bits_per_second\n0,0\n0.5,8e6\n100,8e6\n")
    trace = {"kind": "trace", "file": str(tmp_path / "outage.csv"), "format": "csv", "shift": "none"}
    timeouts = {"connection": "200 ms", "first_wait": "50 ms"}
    links = {"5g": {"down": trace, "up": trace}}
    scenario = small(network__links=links, network__transport={"timeouts": timeouts}, training__rounds=3)
    run(scenario, out=tmp_path / "run", train=False)
    (entry,) = json.loads((tmp_path / "run" / "summary.json").read_text())["methods"]["fedavg"]
    (made,) = plan(scenario).methods
    assert entry["transfers"]["breaks"] > 0
    assert made.breaks * made.rounds == pytest.approx(entry["transfers"]["breaks"])
    assert 0.04 < made.wait_seconds < 0.16  # 50 ms and 80 ms, by chance 20 % more or less
    assert plan(small(training__rounds=3)).methods[0].breaks == 0


def test_the_training_of_a_round_is_extrapolated_from_rounds_of_one_and_of_five_steps(small, monkeypatch):
    scenario = small(training__rounds=8)
    # Rounds of 1, 1 and 5 steps take 9, 3 and 11 s: a step takes 2 s. A client has 40 images, three steps of 16.
    clock = iter([0.0, 9.0, 10.0, 13.0, 20.0, 31.0])
    monkeypatch.setattr(training_time, "perf_counter", lambda: next(clock))
    made = plan(scenario)
    (found,) = training_times(scenario, made, "cpu")
    assert found.seconds == 9 + 8 * (3 + 2 * 2)
    assert found.step_seconds == pytest.approx(2 / scenario.training.cohort)
    assert found.simulated == pytest.approx(8 * made.methods[0].seconds)


@pytest.mark.parametrize("option", [["--here"], ["--here", "--json"]])
def test_the_plan_says_the_time_of_training_for_every_method(small, tmp_path, option):
    small()
    methods = ["--set", 'methods=["moon", "feddyn", "fedbr"]']
    found = CliRunner().invoke(app, ["plan", str(tmp_path / "small.yaml"), *methods, *option])
    assert found.exit_code == 0, found.output
    if "--json" in option:
        made = json.loads(found.stdout)
        trained = made["training"]
        assert set(made["methods"][0]["joules"]) == {"low", "nominal", "high"}
        assert [each["label"] for each in trained] == ["moon", "feddyn", "fedbr"]
        assert all(each["seconds"] > 0 for each in trained)
    else:
        assert found.output.count("this machine trains") == 3
