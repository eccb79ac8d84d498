"""An answer to an inverse question meets the condition in a run of its own, and the neighbour beyond it does not."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.report.quantities import quantity
from edgefl.rerun.inverse import ask, boundary, parse_condition
from edgefl.scenario import load_scenario
from edgefl.scenario.loading import check

from ..small_runs import SMALL

METHODS = ["fedavg", {"method": "fedbr", "scheduler": "gmbs"}]
TRAINING = {"rounds": 10, "cohort": 3, "local": {"epochs": 2, "batch": 16, "lr": 0.2}}
CHANGES = {"methods": METHODS, "targets": [0.35], "seeds": [0, 1], "training": TRAINING}
PRECISION = 0.01


def first_target(folder):
    """What each method and seed spent until the first target, from the summary."""
    methods = json.loads((folder / "summary.json").read_text())["methods"]
    return {(label, each["seed"]): each["targets"][0] for label, entries in methods.items() for each in entries}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run in which every method reaches the target, and a limit that is twice what the slowest needs."""
    folder = run(check({**SMALL, **CHANGES}), out=tmp_path_factory.mktemp("inverse") / "run")
    spent = first_target(folder)
    assert all(each["reached"] for each in spent.values())
    return folder, 2 * max(each["seconds"] for each in spent.values())


@pytest.fixture(scope="module")
def answered(finished):
    folder, limit = finished
    return ask(folder, f"targets.0 within {limit} s")


def seconds_there(tmp_path, changes, label):
    """The most seconds of any seed of a method until the target, in a run of its own under other conditions."""
    folder = run(check({**SMALL, **CHANGES, **changes}), out=tmp_path, methods=[label])
    return max(each["seconds"] for each in first_target(folder).values())


def slower_links(factor):
    network = json.loads(json.dumps(SMALL["network"]))
    drawn = {"kind": "uniform", "low": 4e6 * factor, "high": 28e6 * factor}
    network["topology"]["server"] = {"down": 100e6 * factor, "up": 100e6 * factor}
    network["links"]["5g"].update(down=drawn, up=drawn)
    return {"network": network}


def slower_uplinks(factor):
    network = json.loads(json.dumps(SMALL["network"]))
    network["links"]["5g"]["up"] = {"kind": "uniform", "low": 4e6 * factor, "high": 28e6 * factor}
    return {"network": network}


@pytest.mark.full
def test_the_capacities_at_one_path_are_varied_alone(finished, tmp_path):
    folder, limit = finished
    path = "network.links.5g.up"
    (method,) = ask(folder, f"targets.0 within {limit} s", methods=["fedavg"], vary=[path])["methods"]
    answer = method["answers"][path]
    assert answer["met"] < 1
    assert "up" in answer
    assert "down" not in answer
    assert seconds_there(tmp_path / "met", slower_uplinks(answer["met"]), "fedavg") <= limit
    assert seconds_there(tmp_path / "missed", slower_uplinks(answer["missed"]), "fedavg") > limit


def test_a_path_without_capacities_is_refused(finished):
    with pytest.raises(UserError, match=r"cannot vary 'network.links.lte'; expected one of network.links.5g"):
        ask(finished[0], "targets.0 within 1h", vary=["network.links.lte"])


def slower_devices(factor):
    return {"fleet": [{**group, "pace": factor} for group in SMALL["fleet"]]}


@pytest.mark.full
@pytest.mark.parametrize(("name", "changed"), [("bandwidth", slower_links), ("devices", slower_devices)])
def test_a_run_at_the_answer_meets_the_condition_and_one_beyond_it_does_not(
    finished, answered, tmp_path, name, changed
):
    label = "fedavg"
    limit = finished[1]
    answer = next(each for each in answered["methods"] if each["label"] == label)["answers"][name]
    assert 1 < max(answer["met"] / answer["missed"], answer["missed"] / answer["met"]) <= 1 + PRECISION
    assert answer["why"] == "seconds"
    assert seconds_there(tmp_path / "met", changed(answer["met"]), label) <= limit
    assert seconds_there(tmp_path / "missed", changed(answer["missed"]), label) > limit


def course(folder, label):
    """When each seed of a method reached the target: its round and its seconds."""
    return [(each["rounds"], each["seconds"]) for (name, _), each in first_target(folder).items() if name == label]


@pytest.mark.full
def test_batteries_of_the_fleet_itself_are_scaled_together(small, tmp_path):
    fleet = [
        {**group, "overrides": {"battery": {"capacity": capacity}}}
        for group, capacity in zip(SMALL["fleet"], ("100 J", "300 J"), strict=True)
    ]
    folder = run(small(fleet=fleet), out=tmp_path / "run")
    answer = ask(folder, "targets.0 within 1h")["methods"][0]["answers"]["battery"]
    assert 0 < answer["met"] < 1
    assert answer["joules"] == pytest.approx(100 * answer["met"])
    there = []
    for factor in (answer["met"], answer["missed"]):
        scaled = {f"fleet.{n}.overrides.battery.capacity": joules * factor for n, joules in enumerate((100, 300))}
        scenario = small(fleet=fleet, stop="target", **scaled)
        there.append(course(run(scenario, out=tmp_path / f"{factor}"), "fedavg"))
    own = course(folder, "fedavg")
    assert there[0] == own
    assert there[1] != own


def test_the_largest_model_follows_from_bytes_and_rates_where_only_transfers_take_time(tmp_path, capsys):
    """One client, one link: a round takes 2 (L + 8 S f / r)."""
    free = {"fp32_peak": 1e18, "fp32_achievable": 1e18, "memory_bandwidth": 1e18}
    compute = {**free, "operator_overhead": 0, "step_overhead": 0}
    changes = {
        "fleet": [{"profile": "jetson-nano", "share": 1, "link": "5g", "overrides": {"compute": compute}}],
        "network": {
            "topology": {"kind": "star", "server": {"down": 1e12, "up": 1e12}, "latency": 0.02},
            "links": {"5g": {"down": 1e6, "up": 1e6}},
        },
        "training": {**SMALL["training"], "cohort": 1},
        "targets": [0.01],
    }
    folder = run(check({**SMALL, **changes}), out=tmp_path / "run")
    (target,) = first_target(folder).values()
    one_way = target["bytes"] / target["rounds"] / 2
    seconds = 3 * target["seconds"]
    expected = (seconds / target["rounds"] / 2 - 0.02) * 1e6 / 8 / one_way
    (method,) = ask(folder, f"accuracy=0.01 within {seconds} s")["methods"]
    found = method["answers"]["model"]
    assert found["met"] <= expected < found["missed"] or found["met"] == pytest.approx(expected, rel=1e-3)
    assert found["bytes"] == pytest.approx(one_way * found["met"], rel=1e-4)
    # The bytes that are sent grow in proportion.
    assert main(["plan", str(folder), "--for", f"accuracy=0.01 within {5.5 * target['bytes']} B", "--json"]) == 0
    (method,) = json.loads(capsys.readouterr().out)["methods"]
    found = method["answers"]["model"]
    assert (found["met"] <= 5.5 <= found["missed"], found["why"]) == (True, "bytes")
    assert (method["answers"]["bandwidth"]["missed"], method["answers"]["devices"]["missed"]) == (None, None)


@pytest.mark.full
def test_seconds_that_the_scenario_gives_grow_with_slower_devices_and_a_larger_model(small, tmp_path):
    fast = {"kind": "star", "server": {"down": 1e15, "up": 1e15}, "latency": 0}
    network = {"topology": fast, "links": {"5g": {"down": 1e15, "up": 1e15}}}
    cost = {"kind": "seconds", "methods": {"fedavg": {"low": 1, "high": 2}}}
    folder = run(small(network=network, cost=cost), out=tmp_path / "run")
    seconds = first_target(folder)["fedavg", 0]["seconds"]
    answers = ask(folder, f"targets.0 within {5 * seconds} s")["methods"][0]["answers"]
    for answer in (answers["devices"], answers["model"]):
        assert answer["met"] <= 5 < answer["missed"] or answer["met"] == pytest.approx(5, rel=1e-6)
        assert "device" not in answer


@pytest.mark.full
def test_a_model_that_is_too_large_for_a_device_names_it(small, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    memory = {"memory": {"training": "1 MB"}}
    fleet = [{"profile": "raspberry-pi-4", "share": 1, "link": "5g", "overrides": memory}]
    folder = run(small(fleet=fleet), out=tmp_path / "run")
    costs = json.loads((folder / "costs.json").read_text())["fedavg"]
    (method,) = ask(folder, "accuracy=0.2 within 1000 days")["methods"]
    answer = method["answers"]["model"]
    assert answer["met"] <= 1e6 / max(step["peak_memory_bytes"] for step in costs) < answer["missed"]
    assert (answer["why"], answer["different"]) == ("memory", "raspberry-pi-4")
    assert main(["plan", str(folder), "--for", "accuracy=0.2 within 1000 days"]) == 0
    assert "too little memory: raspberry-pi-4" in " ".join(capsys.readouterr().out.split())
    assert method["answers"]["bandwidth"]["missed"] is None
    assert method["answers"]["bandwidth"]["met"] == pytest.approx(1e-3)


@pytest.mark.full
def test_a_condition_that_no_single_change_can_meet_has_no_answer(finished):
    (method,) = ask(finished[0], "targets.0 within 1 ms", methods=["fedavg"])["methods"]
    for name in ("bandwidth", "devices", "model"):
        assert (method["answers"][name]["met"], method["answers"][name]["why"]) == (None, "seconds")


@pytest.mark.full
def test_methods_that_decide_by_time_need_training_except_for_batteries(answered):
    found = {each["label"]: each for each in answered["methods"]}
    assert {label for label, each in found.items() if each["needs_training"]} == {"fedbr"}
    assert set(found["fedbr"]["answers"]) == {"battery"}
    assert "decision on blocks in round 2 read compute_seconds and transfer_seconds" in found["fedbr"]["needs_training"]


@pytest.mark.full
def test_a_value_that_the_run_does_not_reach_needs_training(finished):
    for method in ask(finished[0], "accuracy=1 within 1 day")["methods"]:
        assert (method["spent"], method["answers"]) == (None, {})
        entries = json.loads((finished[0] / "summary.json").read_text())["methods"][method["label"]]
        best = [f"{quantity(each['accuracy']['best'], 'fraction')} with seed {each['seed']}" for each in entries]
        assert (
            method["needs_training"] == f"the run does not reach the value; its best accuracy is {' and '.join(best)}"
        )


@settings(max_examples=30)
@given(st.floats(1e-3, 1e3, exclude_min=True, exclude_max=True), st.booleans())
def test_the_bisection_ends_on_both_sides_of_the_boundary(truth, larger_is_harder):
    def fails(factor):
        return factor > truth if larger_is_harder else factor < truth

    ends = (1e-3, 1e3) if larger_is_harder else (1e3, 1e-3)
    met, missed = boundary(fails, easiest=ends[0], missed=ends[1])
    assert met is not None
    assert not fails(met)
    assert fails(missed)
    assert max(met, missed) <= (1 + PRECISION) * min(met, missed)


@pytest.mark.parametrize(
    ("text", "value", "smoothed", "limits"),
    [
        ("accuracy=0.9 within 1h", 0.9, False, {"seconds": 3600}),
        (" accuracy = 0.9  within 1.5 min and within 2 GB and within 5kJ ", 0.9, False,
         {"seconds": 90, "bytes": 2e9, "joules": 5000}),
        ("accuracy_ema=0.5 within 1 Wh", 0.5, True, {"joules": 3600}),
        ("targets.0 within 1e3 s", 0.8, False, {"seconds": 1000}),
        ("accuracy=0.5 within 60 g and within 5 ct", 0.5, False, {"grams": 60, "euros": 0.05}),
    ],
)  # fmt: skip
def test_a_condition_is_read_with_its_units(text, value, smoothed, limits):
    condition = parse_condition(text, load_scenario("grid_day_digits"))
    assert (condition.value, condition.smoothed, condition.limits) == (value, smoothed, limits)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("accuracy=0.9", "expected METRIC=VALUE within QUANTITY"),
        ("rmse=0.9 within 1h", "expected accuracy, the task's metric, found rmse"),
        ("accuracy=90 within 1h", "expected a share in (0, 1], found 90"),
        ("targets.2 within 1h", "the run's scenario has 2 targets, counted from 0; found targets.2"),
        (
            "accuracy=0.9 within 5",
            "expected seconds, bytes, joules, grams or euros with a unit, such as '1h' or '500 MB', found '5'",
        ),
        ("accuracy=0.9 within 0 s", "expected more than 0, found '0 s'"),
        ("accuracy=0.9 within 1h and within 2 s", "expected one limit of each kind"),
    ],
)
def test_a_wrong_condition_is_refused_in_one_sentence(text, told):
    with pytest.raises(UserError) as refused:
        parse_condition(text, load_scenario("5g_100clients"))
    assert str(refused.value).startswith(f"--for '{text}': ")
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.full
def test_the_command_prints_sentences_and_a_table_or_json(finished, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    folder, limit = finished
    asked = ["plan", str(folder), "--for", f"targets.0 within {limit} s"]
    assert main([*asked, "--method", "fedavg"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith("accuracy 35 % within")
    spent = first_target(folder)
    seconds, sent, joules = (
        quantity(max(spent["fedavg", seed][kind] for seed in (0, 1)), kind) for kind in ("seconds", "bytes", "joules")
    )
    assert f"fedavg itself needs {seconds}, {sent}, {joules}, the most of any seed." in printed
    assert "the median client's link: " in printed
    assert "a client runs empty" in printed
    assert main([*asked, "--json", "--method", "fedavg"]) == 0
    (method,) = json.loads(capsys.readouterr().out)["methods"]
    assert set(method["answers"]) == {"bandwidth", "devices", "battery", "model"}
    assert method["answers"]["devices"]["device"] == "jetson-nano"


@pytest.mark.full
def test_a_run_without_training_and_a_sweep_have_no_answer(small, tmp_path, capsys):
    folder = run(small(), out=tmp_path / "run", train=False)
    assert main(["plan", str(folder), "--for", "accuracy=0.9 within 1h"]) == 2
    told = (
        "has no accuracy to reach, because nothing was trained in it (--no-train): simulate its scenario with training"
    )
    assert told in " ".join(capsys.readouterr().err.split())
    sweep = tmp_path / "sweep"
    sweep.mkdir()
    (sweep / "sweep.json").write_text("{}")
    assert main(["plan", str(sweep), "--for", "accuracy=0.9 within 1h"]) == 2
    told = f"is a sweep: --for needs one of its runs, a folder in {sweep / 'jobs'}"
    assert told in " ".join(capsys.readouterr().err.split())


@pytest.mark.full
def test_a_scenario_has_no_answer_and_a_run_without_a_condition_is_no_question(shared_run, tmp_path, capsys):
    asked = ["--for", "accuracy=0.9 within 1h"]
    for command, told in (
        ([str(shared_run)], "is a run directory: add --for 'accuracy=0.9 within 1h' or --seeds-for 1pt, or plan"),
        (["5g_100clients", *asked], "--for needs the folder of a finished run"),
        ([str(shared_run), *asked, "--rounds", "2"], "--rounds: cannot be combined with --for"),
        ([str(tmp_path), *asked], "expected the folder of a finished run, found no summary.json"),
    ):
        assert main(["plan", *command]) == 2
        error = capsys.readouterr().err
        assert told in " ".join(error.split())
        assert error.startswith("error: ")
