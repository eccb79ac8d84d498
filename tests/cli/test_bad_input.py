"""Wrong input: exit code 2, one message with file, field and what was expected, no traceback, nothing written."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.scenario import Scenario, dump_yaml
from edgefl.scenario.loading import check

SCENARIO = {
    "name": "small",
    "seeds": [0],
    "data": {"name": "digits", "clients": 20, "partition": {"kind": "label_level", "level": 7}},
    "model": {"name": "cnn", "width": 8},
    "training": {"rounds": 2, "cohort": 4, "selection": {"kind": "uniform"}, "local": {"batch": 32, "lr": 0.2}},
    "fleet": [
        {"profile": "raspberry-pi-5", "share": 0.5, "link": "5g"},
        {"profile": "jetson-nano", "share": 0.5, "link": "5g"},
    ],
    "network": {
        "topology": {"kind": "star", "server": {"down": "1 Gbit/s", "up": "1 Gbit/s"}, "latency": "20 ms"},
        "links": {"5g": {"down": "100 Mbit/s", "up": {"kind": "uniform", "low": 1e7, "high": 1e8}, "redraw": "5 s"}},
    },
    "methods": ["fedavg", {"method": "fedbr", "scheduler": {"kind": "fixed", "alpha": 2}, "as": "partial"}],
    "targets": [0.5],
    "budgets": {"seconds": "60 s", "bytes": None},
    "stop": "budget",
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def refused(capsys, tmp_path, *arguments):
    """The one message of a refused command."""
    before = sorted(tmp_path.rglob("*"))
    code = main(list(arguments))
    output = capsys.readouterr()
    assert code == 2, output
    assert output.out == ""
    assert output.err.startswith("error: ")
    assert output.err.count("error:") == 1
    assert "Traceback" not in output.err
    assert sorted(tmp_path.rglob("*")) == before, "something was written"
    return output.err


def written(tmp_path, change=None):
    data = copy.deepcopy(SCENARIO)
    if change is not None:
        change(data)
    (tmp_path / "my.yaml").write_text(dump_yaml(data))
    return "my.yaml"


@pytest.mark.parametrize(
    ("override", "messages"),
    [
        ("trainig.rounds=3", ["trainig: unknown key; did you mean 'training'?"]),
        ("training.local.learning_rate=3", ["training.local.learning_rate: unknown key", "lr"]),
        ("network.links.5g.down=40 mbit/s", ["network.links.5g.down", "unknown unit 'mbit/s'", "'Mbit/s'"]),
        ("network.links.5g.down=-40 Mbit/s", ["network.links.5g.down", "expected 0 or more, found"]),
        ("network.links.5g.up.kind=unifrom", ["network.links.5g.up.kind", "did you mean 'uniform'?"]),
        ("network.topology.latency=20 m", ["network.topology.latency", "unknown unit 'm'"]),
        ("fleet.0.profile=raspbery-pi-5", ["fleet.0.profile", "did you mean 'raspberry-pi-5'?"]),
        ("fleet.0.profile=./mine.yaml", ["fleet.0.profile", "mine.yaml: no such file"]),
        ("fleet.0.link=4g", ["fleet.0.link", "no link '4g' in network.links; expected one of: 5g"]),
        ("fleet.0.share=0.6", ["fleet", "expected shares that sum to 1, found 1.1"]),
        ("methods.0=fedagv", ["methods.0", "unknown method 'fedagv'; did you mean 'fedavg'?"]),
        ("methods.1.method=fedbrr", ["methods.1.method", "did you mean 'fedbr'?"]),
        ("methods.0.mu=0.1", ["methods.0.mu", "unknown key"]),
        ("methods.1.scheduler.kind=gmsb", ["methods.1.scheduler.kind", "did you mean 'gmbs'?"]),
        ("methods.1.scheduler.alpha=-1", ["methods.1.scheduler.alpha", "found -1"]),
        ("methods.0.scheduler=gmbs", ["methods.0.scheduler", "has no block scheduler"]),
        ("methods.1.as=../../escape", ["methods.1.as", "expected a label that can name a folder"]),
        ("methods.1.as=FedAvg", ["methods.1", "is used by methods.0"]),
        ("methods=[fedavg, fedavg]", ["methods.1", "the label 'fedavg' is used by methods.0"]),
        ("methods=[]", ["methods", "at least one method"]),
        ("methods=fedavg", ["methods", "expected a list of methods"]),
        ("methods=[{mehtod: fedavg}]", ["methods.0.method", "this key is missing"]),
        ("model.name=cnm", ["model.name", "unknown model 'cnm'; did you mean 'cnn'?"]),
        ("model.wdith=3", ["model.wdith", "did you mean 'width'?"]),
        ("model=3", ["model", "expected a model as a mapping with the key name, found 3"]),
        ("data.name=digts", ["data.name", "did you mean 'digits'?"]),
        ("data.partition.level=11", ["data.partition"]),
        ("data.partition.kind=labels", ["data.partition.kind", "'labels'"]),
        ("data.clients=0", ["data.clients", "found 0"]),
        ("training.cohort=21", ["training.cohort", "expected at most data.clients (20), found 21"]),
        ("protocol.over_select=6", ["protocol.over_select", "6 x 4 = 24"]),
        ("protocol.kind=asynchronus", ["protocol.kind", "'asynchronus'; did you mean 'asynchronous'?"]),
        ("protocol={kind: asynchronous, concurrency: 21}", ["protocol.concurrency", "data.clients (20), found 21"]),
        ("protocol.late=partial", ["protocol", "expected a deadline, found null"]),
        ("protocol={kind: hierarchical}", ["protocol.kind", "of kind 'cells', found 'star'"]),
        ("protocol={kind: asynchronous, deadline: 3 s}", ["protocol.deadline", "unknown key"]),
        ("protocol={deadline: soon}", ["protocol.deadline", "expected seconds"]),
        ("protocol={deadline: {kind: adaptive, deviation: 2}}", ["protocol.deadline.deviation", "'deviations'"]),
        ("network.transport={timeouts: {}}", ["network.transport.timeouts", "expected a time-out"]),
        ("network.transport={timeouts: {transfer: 3, chunk: 1 MB}}", ["timeouts", "chunk", "resume is none"]),
        (
            "network.transport={timeouts: {transfer: 3, resume: ranges, chunk: 1.5}}",
            ["timeouts", "chunk", "expected a whole number of bytes"],
        ),
        ("network.transport={timeouts: {transfer: 3, first_wait: 5 min}}", ["timeouts", "first_wait at most"]),
        ("network.transport={multicast: true, timeouts: {transfer: 3}}", ["network.transport", "multicast is true"]),
        ("protocol={kind: asynchronous, staleness: hing}", ["protocol.staleness.kind", "did you mean 'hinge'?"]),
        ("cost.kind=papers", ["cost.kind", "did you mean 'paper'?"]),
        ("cost={kind: seconds, methods: {fedavgm: 1 s}}", ["cost.methods", "no seconds of method 'fedavg'", "fedavgm"]),
        ("cost={kind: seconds, methods: {fedavg: 1 s}, redraw: 3 s}", ["cost", "10 rounds"]),
        ("training.selection.kind=ort", ["training.selection.kind", "did you mean 'oort'?"]),
        ("training.selection=deadline", ["training.selection.deadline", "this key is missing"]),
        ("training.selection={kind: fixed, clients: [0, 1, 2, 20]}", ["training.selection.clients", "found 20"]),
        ("training.selection={kind: fixed, clients: [0, 1]}", ["training.selection.clients", "training.cohort (4)"]),
        ("training.selection={kind: fixed, clients: [0, 1, 2, 2]}", ["training.selection.clients", "different"]),
        ("methods.1.scheduler.alpha=5", ["methods.1.scheduler.alpha", "only 4 blocks"]),
        ("network.topology={kind: file, file: absent.json}", ["network.topology", "absent.json"]),
        ("training.local={epochs: 1, steps: 3}", ["training.local.steps", "either epochs or steps"]),
        ("training.local.lr=.inf", ["training.local.lr", "expected a finite number"]),
        ("training.rounds=2.5", ["training.rounds", "expected a whole number, found 2.5"]),
        ("targets=[0.9, 90]", ["targets.1", "expected 1 or less, found 90"]),
        ("targets=[0]", ["targets.0", "more than 0"]),
        ("targets=[0.5, 0.5]", ["targets.1", "found 0.5 twice"]),
        ("budgets.seconds=-1 s", ["budgets.seconds"]),
        ("budgets.joules=5 kWatt", ["budgets.joules", "unknown unit 'kWatt'"]),
        ("budgets.watts=5", ["budgets.watts", "unknown key"]),
        ("stop=targets", ["stop", "did you mean 'target'?"]),
        ("seeds=[0, 0]", ["seeds.1", "found 0 twice"]),
        ("seeds=[-1]", ["seeds.0", "0 or more"]),
        ("seeds=[]", ["seeds", "at least 1"]),
        ("name=../up", ["name"]),
        ("evaluation.split=train", ["evaluation.split", "'train'"]),
    ],
)
def test_a_wrong_value_names_its_field_and_what_was_expected(capsys, tmp_path, override, messages):
    message = refused(capsys, tmp_path, "simulate", written(tmp_path), "--out", "out", "--set", override)
    assert f"--set {override}" in message or "my.yaml" in message
    for part in messages:
        assert part in message


def test_a_wrong_value_in_the_file_names_the_file(capsys, tmp_path):
    def misspell(data):
        data["training"]["round"] = data["training"].pop("rounds")

    message = refused(capsys, tmp_path, "simulate", written(tmp_path, misspell))
    assert message == "error: my.yaml: training.round: unknown key; did you mean 'rounds'?\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "the file is empty"),
        (b"# only a comment\n", "found only comments"),
        (b"name: [1\n", "not YAML"),
        (b"name: a\nname: b\n", "twice"),
        (b"- fedavg\n", "expected a mapping with the keys of a scenario, found a list"),
        (b"just text\n", "expected a mapping with the keys of a scenario, found 'just text'"),
        (b"\x00\xff\xfe", "expected text in UTF-8"),
        (b"{}", "this key is missing"),
        (b"name: !!python/object/apply:os.system [ls]\n", "expected plain data"),
    ],
)
def test_what_is_no_scenario_at_all_is_named(capsys, tmp_path, content, expected):
    (tmp_path / "my.yaml").write_bytes(content)
    message = refused(capsys, tmp_path, "simulate", "my.yaml")
    assert message.startswith("error: my.yaml: ")
    assert expected in message


def test_missing_files_folders_and_names(capsys, tmp_path):
    (tmp_path / "folder").mkdir()
    assert "no such file" in refused(capsys, tmp_path, "simulate", "absent.yaml")
    assert "found a folder" in refused(capsys, tmp_path, "simulate", "folder")
    assert "did you mean '5g_100clients'?" in refused(capsys, tmp_path, "simulate", "5g_100client")
    assert "expected" in refused(capsys, tmp_path, "simulate", "")
    assert "error:" in refused(capsys, tmp_path, "simulate", "x" * 5000)
    assert "error:" in refused(capsys, tmp_path, "simulate", "a\0b")


def test_missing_data_files_are_named_before_anything_is_written(capsys, tmp_path):
    changes = ["--set", "data={name: parquet, clients: 20, folder: nowhere}", "--set", f"data.root={tmp_path}"]
    message = refused(capsys, tmp_path, "simulate", written(tmp_path), *changes)
    assert "nowhere" in message
    assert "data.root" in message


@pytest.mark.parametrize("flag", [[], ["--out", "runs/small"]])
@pytest.mark.parametrize("content", ["summary.json", "scenario.yaml", "notes.txt"])
def test_an_output_folder_that_holds_something_is_left_alone(capsys, tmp_path, flag, content):
    folder = tmp_path / "runs" / "small"
    folder.mkdir(parents=True)
    (folder / content).write_text("{}")
    assert "--out" in refused(capsys, tmp_path, "simulate", written(tmp_path), *flag)
    assert (folder / content).read_text() == "{}"


def test_an_output_folder_below_a_file_is_refused(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert "found the file" in refused(capsys, tmp_path, "simulate", written(tmp_path), "--out", "file/run")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--method", "fedbr"], "no method labelled 'fedbr'; expected one of: fedavg, partial"),
        (["--method", "fedagv"], "did you mean 'fedavg'?"),
        (["--seed", "-1"], "seeds.0"),
        (["--seed", "1", "--seed", "1"], "found 1 twice"),
        (["--seed", "one"], "--seed"),
        (["--device", "tpu"], "--device"),
        (["--engine", "fast"], "error: Invalid value for '--engine': 'fast' is not one of"),
        (["--set", "training.rounds"], "expected PATH=VALUE"),
        (["--set", "fleet.7.share=1"], "an index from 0 to 1"),
        (["--bogus"], "--bogus"),
        (["--set", "network.links.lan.down=50 MB"], "did you mean 'MB/s', or 'Mbps' for bits?"),
        (["and more"], "unexpected"),
    ],
)
def test_wrong_arguments_are_refused_alike(capsys, tmp_path, arguments, expected):
    assert expected in refused(capsys, tmp_path, "simulate", written(tmp_path), *arguments)


@pytest.mark.parametrize("command", [["simulate"], ["sweep", "--grid", "training.rounds=1,2"]])
def test_an_engine_that_the_scenarios_options_do_not_fit_is_blamed_on_its_option(capsys, tmp_path, command):
    def products(data):
        data["training"]["engine"] = {"kind": "batched", "convolutions": "products"}

    name, *rest = command
    message = refused(capsys, tmp_path, name, written(tmp_path, products), *rest, "--engine", "sequential")
    assert message.startswith("error: --engine sequential: training.engine: convolutions: products applies to")


def test_verify_refuses_what_is_no_run(capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    refused(capsys, tmp_path, "verify", "empty")
    refused(capsys, tmp_path, "verify", "absent")


def test_unknown_names_in_the_lists(capsys, tmp_path):
    assert "did you mean 'fedavg'?" in refused(capsys, tmp_path, "methods", "fedagv")
    assert "did you mean 'resnet18'?" in refused(capsys, tmp_path, "models", "resnet81")
    assert "did you mean 'digits'?" in refused(capsys, tmp_path, "datasets", "digit")


def nodes(data, path=()):
    yield path
    if isinstance(data, dict | list):
        for key in data if isinstance(data, dict) else range(len(data)):
            yield from nodes(data[key], (*path, key))


PATHS = [path for path in nodes(SCENARIO) if path]
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["40 mbit/s", "1e999 s", "-3", "nan", "../..", "5 kJ", "\x00", "²", "0"]),
    st.lists(st.integers(-3, 3), max_size=3),
    st.dictionaries(st.one_of(st.text(max_size=5), st.integers()), st.integers(-3, 3), max_size=3),
)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PATHS), st.sampled_from(["replace", "remove", "rename", "add"]), ODD)
def test_any_single_mutation_is_a_scenario_or_one_clear_message(path, kind, odd):
    data = copy.deepcopy(SCENARIO)
    parent = data
    for key in path[:-1]:
        parent = parent[key]
    key = path[-1]
    if kind == "replace":
        parent[key] = odd
    elif kind == "remove" or isinstance(parent, list):
        del parent[key]
    elif kind == "rename":
        parent[f"{key}x"] = parent.pop(key)
    else:
        parent["surplus"] = odd
    try:
        scenario = check(data, file="my.yaml")
    except UserError as error:
        message = str(error)
        assert message.startswith("my.yaml: ")
        assert path[0] in message or (kind == "add" and "surplus" in message), message
        assert "pydantic" not in message
        assert "Input should" not in message
    else:
        assert isinstance(scenario, Scenario)
        assert json.dumps(scenario.model_dump(mode="json"))
