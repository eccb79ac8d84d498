"""Wrong input: exit code 2, one message with file, field and what was expected, no traceback, nothing written."""

import pytest

from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.scenario import rehearse
from edgefl.scenario.loading import check
from edgefl.scenario.overrides import overridden, parse_overrides
from edgefl.yaml_file import dump_yaml

from ..small_runs import SMALL

SCENARIO = SMALL | {
    "methods": ["fedavg", {"method": "fedbr", "scheduler": {"kind": "fixed", "alpha": 2}, "as": "partial"}],
    "budgets": {"seconds": "60 s", "bytes": None},
    "stop": "budget",
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text(dump_yaml(SCENARIO))


@pytest.fixture
def refused(capsys, tmp_path):
    """The one message of a refused command."""

    def call(*arguments):
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

    return call


@pytest.mark.parametrize(
    ("override", "field", "message"),
    [
        ("trainig.rounds=3", "trainig", "did you mean 'training'"),
        ("training.local.learning_rate=3", "training.local.learning_rate", "lr"),
        ("network.links.5g.down=40 mbit/s", "network.links.5g.down", "'Mbit/s'"),
        ("fleet.0.link=4g", "fleet.0.link", "5g"),
        ("fleet.0.share=0.6", "fleet", "1.1"),
        ("methods.0=fedagv", "methods.0", "'fedavg'"),
        ("methods.0.scheduler=gmbs", "methods.0.scheduler", "no block scheduler"),
        ("methods.1.as=../../escape", "methods.1.as", "folder"),
        ("data.partition.s=5", "data", "the number of classes, 4, found 5"),
        ("training.cohort=9", "training.cohort", "8"),
        ("protocol.over_select=6", "protocol.over_select", "18"),
        ("protocol={kind: hierarchical}", "protocol.kind", "'cells'"),
        ("protocol={kind: asynchronous, concurrency: 9}", "protocol.concurrency", "8"),
        ("network.transport={timeouts: {transfer: 3, chunk: 1 MB}}", "network.transport.timeouts", "chunk"),
        ("cost={kind: seconds, methods: {fedavgm: 1 s}}", "cost.methods", "'fedavg'"),
        ("training.selection={kind: fixed, clients: [0, 1, 8]}", "training.selection.clients", "8"),
        ("network.topology={kind: file, file: absent.json}", "network.topology", "absent.json"),
        ("training.local={epochs: 1, steps: 3}", "training.local.steps", "epochs"),
        ("targets=[0.5, 0.5]", "targets.1", "twice"),
    ],
)
def test_a_wrong_value_names_its_field_and_what_was_expected(override, field, message):
    with pytest.raises(UserError) as raised:
        rehearse(check(overridden(SCENARIO, parse_overrides([override]))))
    assert raised.value.field.startswith(field)
    assert message in str(raised.value)


def test_a_wrong_value_of_an_option_or_of_the_file_names_where_it_stands(refused, tmp_path):
    assert "--set training.rounds=2.5: training.rounds: " in refused(
        "simulate", "my.yaml", "--set", "training.rounds=2.5"
    )
    (tmp_path / "my.yaml").write_text(dump_yaml({**SCENARIO, "stopp": "budget"}))
    assert "my.yaml: stopp: unknown key; did you mean 'stop'?" in refused("simulate", "my.yaml")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "empty"),
        (b"name: [1\n", "not YAML"),
        (b"- fedavg\n", "found a list"),
        (b"\x00\xff\xfe", "UTF-8"),
        (b"{}", "missing"),
    ],
)
def test_what_is_no_scenario_at_all_is_named(refused, tmp_path, content, expected):
    (tmp_path / "my.yaml").write_bytes(content)
    message = refused("simulate", "my.yaml")
    assert message.startswith("error: my.yaml: ")
    assert expected in message


def test_missing_files_folders_and_names(refused, tmp_path):
    (tmp_path / "folder").mkdir()
    assert "no such file" in refused("simulate", "absent.yaml")
    assert "found a folder" in refused("simulate", "folder")
    assert "did you mean '5g_100clients'?" in refused("simulate", "5g_100client")
    refused("verify", "folder")
    refused("verify", "absent")
    missing = ["--set", "data={name: parquet, clients: 8, folder: nowhere}", "--set", f"data.root={tmp_path}"]
    assert "nowhere" in refused("simulate", "my.yaml", *missing)


def test_an_output_folder_that_holds_something_is_left_alone(refused, tmp_path):
    folder = tmp_path / "runs" / "small"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    for flag in ([], ["--out", "runs/small"], ["--out", "my.yaml/run"]):
        assert "--out" in refused("simulate", "my.yaml", *flag)
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--method", "fedbr"], "fedavg, partial"),
        (["--method", "fedagv"], "did you mean 'fedavg'?"),
        (["--seed", "-1"], "seeds.0"),
        (["--seed", "1", "--seed", "1"], "twice"),
        (["--seed", "one"], "--seed"),
        (["--device", "tpu"], "--device"),
        (["--engine", "fast"], "--engine"),
        (["--set", "training.rounds"], "PATH=VALUE"),
        (["--bogus"], "--bogus"),
        (["and more"], "unexpected"),
    ],
)
def test_wrong_arguments_are_refused_alike(refused, arguments, expected):
    assert expected in refused("simulate", "my.yaml", *arguments)
