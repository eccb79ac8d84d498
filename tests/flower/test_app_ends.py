"""How runs of apps end early: errors of edgefl's own parts cannot be caught by the app, and no thread is left."""

import textwrap
import threading

import pytest

from edgefl.errors import UserError
from edgefl.experiment import RunsFailed
from edgefl.flower.scenario import AppScenario
from edgefl.record import RunPaths
from edgefl.record.events import Listener
from edgefl.validation import validated

from .runs import APPS, answers, app_run, check, made_app, needs_flwr, summary_of, world

pytestmark = needs_flwr


def line_of(file, code):
    """The number of the line of a file that begins with this code."""
    (number,) = [n for n, line in enumerate(file.read_text().splitlines(), 1) if line.strip().startswith(code)]
    return number


CATCHES_ALL = """
for number in range(3):
    try:
        grid.send_and_receive(messages(grid, "train"))
    except Exception as error:
        say(str(error))
"""


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def listened(out, flower, listener):
    from edgefl.flower.run import run

    run(validated(AppScenario, world(flower=flower)), out=out, listeners=[listener])


def test_a_wrong_metric_ends_the_run_even_if_the_app_catches_errors(tmp_path):
    start = "from flwr.serverapp.strategy import Result\nresult = Result()"
    server = start + CATCHES_ALL + '    result.evaluate_metrics_serverapp[1] = MetricRecord({"accuracy": 5.0})\n'
    server = server.replace("5.0", "5.0 if number else 0.5")
    with pytest.raises(RunsFailed, match="the app's metric 'accuracy' is 5, which is no accuracy"):
        app_run(tmp_path / "run", flower=made_app(tmp_path / "app", server))
    assert not (tmp_path / "app" / "said").exists()


def test_a_listener_runs_outside_the_app_and_its_error_is_the_callers(tmp_path):
    threads = []

    class Broken(Listener):
        def round_ended(self, row):
            threads.append(threading.current_thread())
            raise LookupError("no display")

    with pytest.raises(LookupError, match="no display"):
        listened(tmp_path / "run", made_app(tmp_path / "app", CATCHES_ALL), Broken())
    assert threads == [threading.main_thread()]


def test_a_budget_ends_an_app_in_the_middle(tmp_path):
    flower = {"app": str(APPS / "legacy"), "seconds": {"train": "7 s", "evaluate": "1 s", "query": "2 s"}}
    paths = app_run(tmp_path / "run", flower=flower, budgets={"seconds": "12 s"})
    check(paths)
    assert summary_of(paths)["stop"] == {"reason": "seconds", "round": 1}
    assert summary_of(paths)["seconds"] == 12


def test_ctrl_c_leaves_no_thread(tmp_path):
    class Interrupts(Listener):
        def round_ended(self, row):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        listened(tmp_path / "run", made_app(tmp_path / "app", CATCHES_ALL), Interrupts())


WAITS = {
    "current": """
    from flwr.serverapp.strategy import FedAvg
    FedAvg(min_available_nodes=5).start(grid=grid, initial_arrays=ArrayRecord([numpy.zeros(1)]), num_rounds=1)
    """,
    "legacy": """
    from flwr.server import LegacyContext, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.server.workflow import DefaultWorkflow
    from flwr.common import ndarrays_to_parameters
    initial = ndarrays_to_parameters([numpy.zeros(1)])
    strategy = FedAvg(min_available_clients=5, initial_parameters=initial)
    DefaultWorkflow()(grid, LegacyContext(context, ServerConfig(num_rounds=1), strategy))
    """,
}


@pytest.mark.parametrize("server", WAITS.values(), ids=WAITS)
def test_waiting_for_nodes_that_never_come_is_refused(tmp_path, server):
    with pytest.raises(RunsFailed, match=r"more nodes than will ever be available: 4 of 4 are there"):
        app_run(tmp_path / "run", flower=made_app(tmp_path / "app", server))


def test_waiting_for_a_node_that_restarts_takes_until_then(tmp_path):

    server = """
    from flwr.serverapp.strategy.strategy_utils import sample_nodes
    time.sleep(2)
    say(len(grid.get_node_ids()))
    say(len(sample_nodes(grid, 4, 4)[0]))
    """
    failures = [{"kind": "crash", "client": 2, "at": "1 s", "duration": "10 s"}]
    paths, found = answers(tmp_path, server, failures=failures)
    assert found == [3, 4]
    assert summary_of(paths)["seconds"] == pytest.approx(11, abs=1)


def test_a_time_out_of_the_client_manager_is_virtual(tmp_path):

    server = """
    from flwr.server.client_manager import SimpleClientManager
    from flwr.server.compat.app import start_update_client_manager_thread
    manager = SimpleClientManager()
    start_update_client_manager_thread(grid, manager)
    say(manager.wait_for(4))
    say(manager.wait_for(5, timeout=12))
    """
    paths, found = answers(tmp_path, server)
    assert found == [True, False]
    assert summary_of(paths)["seconds"] == 12


def test_the_limit_of_workers_of_the_legacy_server_is_refused(tmp_path):
    server = """
    from flwr.server.server import fit_clients
    try:
        fit_clients([], max_workers=2, timeout=None, group_id=1)
    except Exception as error:
        say(type(error).__name__)
    """
    with pytest.raises(RunsFailed, match=r"flower.app: .*max_workers"):
        app_run(tmp_path / "run", flower=made_app(tmp_path / "app", server))


def test_an_app_that_sleeps_for_ever_is_refused(tmp_path, monkeypatch):
    from edgefl.flower import grid

    monkeypatch.setattr(grid, "MOST_IDLE_SLEEPS", 50)
    server = """
    grid.send_and_receive(messages(grid))
    while len(grid.get_node_ids()) < 100:
        time.sleep(3)
    """
    with pytest.raises(RunsFailed, match=r"has slept 50 times, until 15\d\.\d+ s of virtual time, while no message"):
        app_run(tmp_path / "run", flower=made_app(tmp_path / "app", server))


def test_an_error_of_the_server_app_names_the_line_of_the_app_and_not_that_of_flower(tmp_path):
    server = """
    from flwr.serverapp.strategy import FedAvg
    def broken(number, arrays):
        raise ValueError("no test data")
    grid.send_and_receive(messages(grid, "train"))
    FedAvg().start(grid=grid, initial_arrays=ArrayRecord([numpy.zeros(1)]), num_rounds=1, evaluate_fn=broken)
    """
    made = made_app(tmp_path / "app", server)
    line = line_of(tmp_path / "app" / "made.py", "raise ValueError")
    with pytest.raises(RunsFailed) as told:
        app_run(tmp_path / "run", flower=made)
    assert told.value.messages == [
        "flower, seed 0: method 'flower', round 1, the ServerApp: ValueError: no test data "
        f"(made.py, line {line}, in broken)"
    ]


BAD = {
    "metric": "from flwr.serverapp.strategy import Result\nr = Result()\ngrid.send_and_receive(messages(grid, 'train'))"
    "\nr.evaluate_metrics_serverapp[1] = MetricRecord({'accuracy': 500.0})\n",
    "nodes": WAITS["current"],
    "reply": "grid.send_and_receive(messages(grid, 'train', RecordDict({'odd': None})))",
    "import": "pass\n\nprint(unknown)",
}


@pytest.mark.parametrize("what", BAD)
def test_the_fault_of_one_app_leaves_the_others(tmp_path, what):
    """Also if it is found by edgefl itself, and if the app cannot be imported."""
    other = made_app(tmp_path / "other", textwrap.dedent(BAD[what]))["app"]
    if what == "import":
        code = tmp_path / "other" / "made.py"
        code.write_text(code.read_text() + "\nprint(unknown)\n")
    flower = made_app(tmp_path / "app", "grid.send_and_receive(messages(grid, 'train'))")
    methods = [{"as": "bad", "app": other}, {"as": "good"}]
    with pytest.raises(RunsFailed):
        app_run(tmp_path / "run", flower=flower, methods=methods)
    paths = RunPaths(tmp_path / "run")
    assert summary_of(paths, "bad")["stop"]["reason"] == "fault"
    assert summary_of(paths, "good")["rounds"] == 1


def test_an_error_at_import_names_its_line(tmp_path):
    made = made_app(tmp_path / "app", "pass")
    code = tmp_path / "app" / "made.py"
    code.write_text(code.read_text() + "\nprint(unknown)\n")
    line = line_of(code, "print(unknown)")
    with pytest.raises(UserError, match=rf"'unknown' is not defined \(made.py, line {line}, in <module>\)"):
        app_run(tmp_path / "run", flower=made)
    assert not (tmp_path / "run").exists()
