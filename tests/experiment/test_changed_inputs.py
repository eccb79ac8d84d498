"""Whatever a scenario reads by path is digested: a run goes on with what it began with, or not at all."""

import itertools
import json

import pytest

from edgefl.errors import UserError
from edgefl.experiment import go_on, resume, run
from edgefl.experiment.inputs import digest_of_scenario
from edgefl.input_file import EXISTS, input_files
from edgefl.record.names import SCENARIO, STATE, SUMMARY
from edgefl.rerun.verify import verify
from edgefl.scenario.overrides import FILES, anchored
from edgefl.yaml_file import dump_yaml, read_yaml

from ..small_runs import CELLS, Stop, replay, tree


def graph(folder):
    nodes = ["server", *(f"client/{k}" for k in range(8))]
    links = [
        {"source": a, "target": b, "capacity": 2e7, "latency": 0.02}
        for client in nodes[1:]
        for a, b in (("server", client), (client, "server"))
    ]
    data = {"directed": True, "multigraph": False, "graph": {}, "nodes": [{"id": n} for n in nodes], "links": links}
    (folder / "graph.json").write_text(json.dumps(data))
    return {"network.topology": {"kind": "file", "file": str(folder / "graph.json")}}


def trace(folder):
    (folder / "rates.csv").write_text("seconds,bits_per_second\n0,8000000\n0.5,16000000\n1,16000000\n")
    here = {"kind": "trace", "format": "csv", "file": str(folder / "rates.csv")}
    return {"network.links": {"5g": {"down": here, "up": "9 Mbit/s"}}}


def availability(folder):
    rows = [{"duration": 500, "active": [k], "inactive": [k + 500], "finish_time": 520 + k} for k in range(5)]
    (folder / "there.json").write_text(json.dumps(rows))
    here = {"kind": "trace", "file": str(folder / "there.json")}
    return {"fleet": [{"profile": "raspberry-pi-4", "share": 1, "link": "5g", "availability": here}]}


def listed(folder):
    (folder / "clients.json").write_text(json.dumps([index % 8 for index in range(320)]))
    return {"data.partition": {"kind": "file", "file": str(folder / "clients.json")}}


KINDS = {
    graph: ("graph.json", "20000000.0", "10000000.0"),
    trace: ("rates.csv", "8000000", "1000000"),
    availability: ("there.json", "520", "530"),
    listed: ("clients.json", "0, 1, 2", "0, 2, 1"),
}
"""How to make an input, and how to change it."""


@pytest.fixture(
    params=[make if make is trace else pytest.param(make, marks=pytest.mark.full) for make in KINDS],
    ids=lambda make: make.__name__,
)
def kind(request, small, tmp_path):
    """A scenario that reads a file, and what changes the file and puts it back."""
    changes = request.param(tmp_path)
    name, old, new = KINDS[request.param]
    file = tmp_path / name
    text = file.read_text()

    def change(*, back=False):
        file.write_text(text if back else text.replace(old, new, 1))
        assert back or file.read_text() != text

    return small(seeds=[0, 1], **changes), file, change


def test_every_field_that_names_a_file_says_so_and_starts_at_the_scenarios_folder(small, tmp_path):
    """A place that one of the two mechanisms knows alone is a file that nobody compares, or nobody finds."""
    fields = {next(iter(input_files(small(**make(tmp_path))))) for make in KINDS}
    patterns = [pattern.split(".") for pattern, what in FILES.items() if what in EXISTS]

    def fits(field, pattern):
        names = field.split(".")
        return len(names) == len(pattern) and all(p in ("*", n) for n, p in zip(names, pattern, strict=True))

    assert {next("/".join(p) for p in patterns if fits(field, p)) for field in fields} == {
        "network/topology/file", "network/links/*/*/file", "fleet/*/availability/file",
        "data/partition/file",
    }  # fmt: skip


def test_an_input_that_changed_meanwhile_ends_the_resumption_and_names_itself(kind, tmp_path):
    scenario, file, change = kind
    expected = tree(run(scenario, out=tmp_path / "expected", train=False))
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=folder, train=False, listeners=[Stop(6)])
    left = tree(folder)
    change()
    with pytest.raises(UserError, match="has changed since the run began") as refused:
        resume(folder)
    assert refused.value.file == str(file)
    assert tree(folder) == left
    file.rename(file.with_suffix(".gone"))
    with pytest.raises(UserError, match=str(file)):
        resume(folder)
    change(back=True)
    assert tree(resume(folder)) == expected


def walks(folder):
    """A folder with a pair of traces for each of three clients."""
    (folder / "walks").mkdir()
    for number, way in itertools.product(range(3), ("down", "up")):
        rows = "".join(f"{second},{(second + number + 1) * 1e6}\n" for second in range(3))
        (folder / "walks" / f"{number}.{way}").write_text("seconds,bits_per_second\n" + rows)
    here = {"kind": "trace", "format": "csv", "file": str(folder / "walks")}
    return {"network.links": {"5g": {"down": here, "up": here}}}


def test_a_folder_of_traces_is_searched_next_to_the_scenario_and_a_shipped_name_is_kept(tmp_path, monkeypatch):
    walks(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "5gophers").write_text("not the shipped one")
    monkeypatch.chdir(elsewhere)
    capacity = {"kind": "trace", "file": "walks", "format": "csv"}
    data = {"network": {"links": {"5g": {"down": capacity, "up": {"kind": "trace", "file": "5gophers"}}}}}
    links = anchored(data, tmp_path)["network"]["links"]["5g"]
    assert links["down"]["file"] == str(tmp_path / "walks")
    assert links["up"]["file"] == "5gophers"


def test_another_scenario_is_not_resumed(small, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(small(seeds=[0, 1]), out=folder, train=False, listeners=[Stop(6)])
    file = folder / "scenario.yaml"
    file.write_text(file.read_text().replace("lr: 0.1", "lr: 0.2"))
    with pytest.raises(UserError, match="has changed since the run began") as refused:
        resume(folder)
    assert refused.value.file == str(file)
    assert (folder / STATE).is_file()


def test_a_run_of_a_build_with_other_keys_goes_on_and_is_verified_and_replayed(small, tmp_path):
    kept = {"method": "fedavg", "local": {"momentum": 0.5, "optimizer": {"kind": "sgd", "state": "keep"}}}
    scenario = small(methods=[kept, {"method": "fedavg", "as": "reset"}], seeds=[0])
    expected, folder = run(scenario, out=tmp_path / "expected"), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=folder, listeners=[Stop(6)])
    data = read_yaml(folder / SCENARIO)
    data["training"]["local"].pop("optimizer")
    for each, persists in zip(data["methods"], (True, False), strict=True):
        each["persist_momentum"] = persists
    data["methods"][0]["local"].pop("optimizer")
    (folder / SCENARIO).write_text(dump_yaml(data))
    state = json.loads((folder / STATE).read_text())
    state["inputs"]["scenario"] = digest_of_scenario(data)
    (folder / STATE).write_text(json.dumps(state))
    found, expected = tree(resume(folder)), tree(expected)
    assert {name for name in found if found[name] != expected[name]} == {SCENARIO, SUMMARY}
    assert verify(folder) == []
    assert verify(replay(folder, {}, out=tmp_path / "replayed")) == []
    assert verify(go_on(folder, new_seeds=1)) == []


@pytest.mark.full
def test_a_finished_run_is_neither_verified_nor_replayed_with_another_input(kind, tmp_path):
    scenario, file, change = kind
    folder = run(scenario, out=tmp_path / "run")
    assert verify(folder) == []
    other = {"budgets": {"bytes": 10**9}}
    replayed = replay(folder, other, tmp_path / "replayed")
    assert verify(replayed) == []
    change()
    assert any(str(file) in violation for violation in verify(folder))
    with pytest.raises(UserError, match="has changed since") as refused:
        replay(folder, other, tmp_path / "again")
    assert refused.value.file == str(file)
    file.unlink()
    assert any(str(file) in told for told in _told_of(folder))


def _told_of(folder):
    try:
        return verify(folder)
    except UserError as error:  # a fleet cannot even be read without its trace
        return [str(error)]


def test_where_files_lie_is_no_part_of_what_a_run_is(small, tmp_path):
    folders = [tmp_path / "here", tmp_path / "there"]
    runs = []
    for each in folders:
        each.mkdir()
        scenario = small(**trace(each), **{"network.topology": CELLS})
        runs.append(run(scenario, out=each / "run", train=False) / "summary.json")
    assert runs[0].read_bytes() == runs[1].read_bytes()


def test_without_training_no_data_are_compared(small, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(small(seeds=[0, 1]), out=tmp_path / "run", train=False, listeners=[Stop(6)])
    assert json.loads((tmp_path / "run" / STATE).read_text())["inputs"].keys() == {"scenario"}
    assert (resume(tmp_path / "run") / "summary.json").exists()
