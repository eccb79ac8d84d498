"""Interrupted runs of apps, continued: the result is that of a run without an interruption."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edgefl.errors import UserError
from edgefl.flower.client_work import DecidedDifferently
from edgefl.flower.scenario import AppScenario
from edgefl.record import RunPaths
from edgefl.record.events import Listener
from edgefl.validation import validated

from ..small_runs import tree
from .runs import APPS, app_run, made_app, needs_flwr, said, summary_of, world

pytestmark = needs_flwr

KEYS = {
    "flower": {"app": str(APPS / "current"), "run_config": {"num-server-rounds": 3}},
    "methods": [{"as": "plain"}, {"as": "asked", "run_config": {"fraction-evaluate": 1.0}}],
}
CALLS = 4 * 3 + 4 * 6


class StopAfter(Listener):
    """Interrupts a run after so many rows of its log."""

    def __init__(self, rows):
        self.left = rows

    def events(self, rows):
        self.left -= len(rows)
        if self.left <= 0:
            raise KeyboardInterrupt


def interrupted(out, rows, **keys):
    from edgefl.flower.run import run

    with pytest.raises(KeyboardInterrupt):
        run(validated(AppScenario, world(**keys)), out=out, listeners=[StopAfter(rows)])
    return out


def resumed(out, **options):
    from edgefl.flower.run import resume

    resume(out, **options)
    return RunPaths(out)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return tree(app_run(tmp_path_factory.mktemp("whole") / "run", **KEYS).scenario.parent)


@pytest.fixture
def calls(monkeypatch):
    """The (client, dispatch) with which a ``ClientApp`` was called."""
    from edgefl.flower.client_work import Clients

    made, original = [], Clients._call

    def call(clients, client, message, dispatch):
        made.append((client, dispatch))
        return original(clients, client, message, dispatch)

    monkeypatch.setattr(Clients, "_call", call)
    return made


@pytest.mark.parametrize("rows", [60, 170])
def test_an_interrupted_run_of_apps_ends_like_an_uninterrupted_one(whole, calls, tmp_path, rows):
    out = interrupted(tmp_path / "run", rows, **KEYS)
    before = len(calls)
    assert before < CALLS
    resumed(out)
    assert tree(out) == whole
    # Nobody is called twice with the same message.
    assert len(calls) == CALLS


@pytest.mark.full
def test_a_run_of_apps_that_is_killed_in_a_client_ends_like_another(whole, tmp_path):
    code = f"""
import os, signal
from pathlib import Path
from edgefl.flower.client_work import Clients
from tests.flower.runs import app_run
original, made = Clients._call, []
def call(*arguments):
    if len(made) == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    made.append(arguments)
    return original(*arguments)
Clients._call = call
app_run(Path({str(tmp_path / "run")!r}), **{KEYS!r})
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == -signal.SIGKILL
    resumed(tmp_path / "run")
    assert tree(tmp_path / "run") == whole


CLIENT = """
count = context.state.setdefault("n", MetricRecord({"n": 0}))
count["n"] += 1 + partition
context.run_config["seen"] = int(count["n"])
time.sleep(count["n"])
if count["n"] == 3:
    raise ValueError("three")
torch.ones(count["n"], 4) @ torch.ones(4, 4)
return Message(RecordDict({"m": MetricRecord({"n": count["n"], "draw": random.random()})}), reply_to=message)
"""
SERVER = """
for round in range(4):
    replies = grid.send_and_receive(messages(grid, "train", RecordDict({"c": ConfigRecord({"server-round": round})})))
    say([round, [dict(each.content["m"]) if each.has_content() else each.error.reason for each in replies]])
"""


@pytest.mark.filterwarnings("ignore:client")
def test_a_resumed_node_has_its_state_and_its_errors(tmp_path):
    logs = []
    for name, rows in (("whole", None), ("early", 25), ("late", 75)):
        folder = tmp_path / name
        flower = {**made_app(folder, SERVER, CLIENT), "seconds": None}
        if rows is None:
            paths = app_run(tmp_path / f"{name}-run", flower=flower)
        else:
            out = interrupted(tmp_path / f"{name}-run", rows, flower=flower)
            (folder / "said").unlink(missing_ok=True)
            paths = resumed(out)
        logs.append((said(folder), paths.of("flower", 0).events.read_bytes(), paths.costs.read_bytes()))
    assert logs[0] == logs[1] == logs[2]
    assert len({json.dumps(each) for _, each in logs[0][0]}) == 4


def test_a_server_that_decides_differently_is_told_so_in_one_sentence(tmp_path):
    server = """
    import os
    for round in range(3):
        content = RecordDict({"c": ConfigRecord({"r": int.from_bytes(os.urandom(7))})})
        grid.send_and_receive(messages(grid, content=content))
    """
    out = interrupted(tmp_path / "run", 40, flower=made_app(tmp_path / "app", server))
    with pytest.raises(DecidedDifferently) as error:
        resumed(out)
    assert "message 1 to client" in str(error.value)
    assert "ServerApp decided differently" in str(error.value)


def test_a_changed_app_does_not_continue(tmp_path):
    shutil.copytree(APPS / "current", tmp_path / "app")
    keys = {"flower": {"app": str(tmp_path / "app")}}
    out = interrupted(tmp_path / "run", 40, **keys)
    file = tmp_path / "app" / "digits" / "task.py"
    file.write_text(file.read_text() + "\n")
    with pytest.raises(UserError, match="has changed since the run began"):
        resumed(out)


def test_an_app_in_the_run_directory_is_executed_only_if_it_is_trusted(tmp_path):
    out = interrupted(tmp_path / "run", 40)
    shutil.copytree(APPS / "current", out / "app")
    scenario = out / "scenario.yaml"
    scenario.write_text(scenario.read_text().replace(str(APPS / "current"), str(out / "app")))
    with pytest.raises(UserError, match=r"part of the run directory.*--trust"):
        resumed(out)
    assert summary_of(resumed(out, trust=True))["accuracy"]["final"] > 0.5


def test_a_finished_run_of_an_app_is_not_resumed(tmp_path):
    app_run(tmp_path / "run")
    with pytest.raises(UserError, match="its run is finished"):
        resumed(tmp_path / "run")
