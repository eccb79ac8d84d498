"""How runs of apps end early: errors of edgefl's own parts cannot be caught by the app, and no thread is left."""

from __future__ import annotations

import threading

import pytest

from edgefl.errors import UserError
from edgefl.flower.scenario import AppScenario
from edgefl.record.listener import Listener
from edgefl.validation import validated

from .runs import APPS, app_run, made_app, needs_flwr, said, world

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
    with pytest.raises(UserError, match="the app's metric 'accuracy' is 5"):
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


def test_a_full_disk_is_no_fault_of_the_app(tmp_path, monkeypatch):
    from edgefl.experiment.faults import NotWritten
    from edgefl.record.tables import EventFile

    def full(self, rows):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(EventFile, "round_ended", full)
    with pytest.raises(NotWritten, match="No space left"):
        app_run(tmp_path / "run", flower=made_app(tmp_path / "app", CATCHES_ALL))


def test_an_error_in_a_clients_work_leaves_no_thread(tmp_path):
    flower = made_app(tmp_path / "app", "grid.send_and_receive(messages(grid, 'train'))")
    with pytest.raises(UserError, match="declare them"):
        app_run(tmp_path / "run", flower={"app": flower["app"]})


def test_a_budget_leaves_no_thread(tmp_path):
    flower = {"app": str(APPS / "legacy"), "seconds": "7 s"}
    app_run(tmp_path / "run", flower=flower, budgets={"seconds": "12 s"})


def test_ctrl_c_leaves_no_thread(tmp_path):
    class Interrupts(Listener):
        def round_ended(self, row):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        listened(tmp_path / "run", made_app(tmp_path / "app", CATCHES_ALL), Interrupts())


def test_no_message_is_sent_after_the_target(tmp_path):
    from .runs import events_of

    server = """
    from flwr.serverapp.strategy import Result
    result = Result()
    for number in (1, 2, 3):
        grid.send_and_receive(messages(grid, "train"))
        result.evaluate_metrics_serverapp[number] = MetricRecord({"accuracy": 0.9})
    """
    flower = made_app(tmp_path / "app", server)
    paths = app_run(tmp_path / "run", flower=flower, targets=[0.5], stop="target")
    assert len([row for row in events_of(paths, "flower", 0, "transfer_end") if row.item == "down"]) == 4


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
    with pytest.raises(UserError, match=r"more nodes than will ever be available: 4 of 4 are there"):
        app_run(tmp_path / "run", flower=made_app(tmp_path / "app", server))


def test_waiting_for_a_node_that_restarts_takes_until_then(tmp_path):
    from .runs import summary_of

    server = """
    from flwr.serverapp.strategy.strategy_utils import sample_nodes
    time.sleep(2)
    say(len(grid.get_node_ids()))
    say(len(sample_nodes(grid, 4, 4)[0]))
    """
    failures = [{"kind": "crash", "client": 2, "at": "1 s", "duration": "10 s"}]
    paths = app_run(tmp_path / "run", flower=made_app(tmp_path / "app", server), failures=failures)
    assert said(tmp_path / "app") == [3, 4]
    assert summary_of(paths)["seconds"] == pytest.approx(11, abs=1)


def test_a_time_out_of_the_client_manager_is_virtual(tmp_path):
    from .runs import summary_of

    server = """
    from flwr.server.client_manager import SimpleClientManager
    from flwr.server.compat.app import start_update_client_manager_thread
    manager = SimpleClientManager()
    start_update_client_manager_thread(grid, manager)
    say(manager.wait_for(4))
    say(manager.wait_for(5, timeout=12))
    """
    paths = app_run(tmp_path / "run", flower=made_app(tmp_path / "app", server))
    assert said(tmp_path / "app") == [True, False]
    assert summary_of(paths)["seconds"] == 12


def test_the_limit_of_workers_of_the_legacy_server_is_refused(tmp_path):
    server = """
    from flwr.server.server import fit_clients
    try:
        fit_clients([], max_workers=2, timeout=None, group_id=1)
    except Exception as error:
        say(type(error).__name__)
    """
    with pytest.raises(UserError, match=r"flower.app: .*max_workers"):
        app_run(tmp_path / "run", flower=made_app(tmp_path / "app", server))


READS = {
    "server": ("now = time.time()", "return Message(RecordDict(), reply_to=message)", "time.time"),
    "client": ("", "now = time.perf_counter_ns()", "time.perf_counter_ns"),
}


@pytest.mark.parametrize(("server", "client", "name"), READS.values(), ids=READS)
def test_an_app_that_reads_a_real_clock_is_warned_once(tmp_path, server, client, name):
    server = f"for _ in range(3):\n    {server or 'pass'}\n    grid.send_and_receive(messages(grid))\n"
    client = f"{client}\nreturn Message(RecordDict(), reply_to=message)"
    with pytest.warns(UserWarning, match="reads a real clock") as found:
        app_run(tmp_path / "run", flower=made_app(tmp_path / "app", server, client))
    (warning,) = [each for each in found if "real clock" in str(each.message)]
    file = tmp_path / "app" / "made.py"
    text = file.read_text().splitlines()
    assert f"time.{name.removeprefix('time.')}, {file}, line " in str(warning.message)
    said_line = int(str(warning.message).partition("line ")[2].partition(";")[0])
    assert f"{name}()" in text[said_line - 1]


def test_clocks_that_others_read_give_no_warning(tmp_path, recwarn):
    server = """
    import threading
    threading.Event().wait(0.01)
    torch.utils.data.DataLoader([1])
    """
    app_run(tmp_path / "run", flower=made_app(tmp_path / "app", server))
    assert [each for each in recwarn if "real clock" in str(each.message)] == []


def test_an_app_that_sleeps_for_ever_is_refused(tmp_path, monkeypatch):
    from edgefl import limits

    monkeypatch.setattr(limits, "SLEEPS_WITHOUT_MESSAGE", 50)
    server = """
    grid.send_and_receive(messages(grid))
    while len(grid.get_node_ids()) < 100:
        time.sleep(3)
    """
    with pytest.raises(UserError, match=r"has slept 50 times, until 15\d\.\d+ s of virtual time, while no message"):
        app_run(tmp_path / "run", flower=made_app(tmp_path / "app", server))


def test_an_app_may_sleep_often_while_a_message_is_in_progress(tmp_path, monkeypatch):
    from edgefl import limits

    monkeypatch.setattr(limits, "SLEEPS_WITHOUT_MESSAGE", 5)
    server = """
    ids = grid.push_messages(messages(grid))
    while len(ids) > len(list(grid.pull_messages(ids))):
        time.sleep(0.01)
        if time.sleep(0) is None and len(grid.get_node_ids()) == 0:
            break
    """
    app_run(tmp_path / "run", flower=made_app(tmp_path / "app", server))


def test_an_error_of_the_server_app_names_the_line_of_the_app_and_not_that_of_flower(tmp_path):
    from edgefl.experiment.faults import RunsFailed

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


def test_an_error_of_a_client_app_names_the_line_even_if_it_has_no_text(tmp_path):
    client = """
    class NoText(Exception):
        def __str__(self):
            raise RuntimeError
    raise NoText
    """
    server = "say(codes(grid.send_and_receive(messages(grid, 'evaluate'))))"
    made = made_app(tmp_path / "app", server, client)
    code = tmp_path / "app" / "made.py"
    (line,) = [n for n, each in enumerate(code.read_text().splitlines(), 1) if "def evaluate" in each]
    with pytest.warns(UserWarning, match=rf"client 0: the ClientApp raised NoText \(made.py, line {line + 6}, in eval"):
        app_run(tmp_path / "run", flower=made, data={"clients": 1})
    (found,) = said(tmp_path / "app")
    assert len(found) == 1
    assert found[0] != 0


def test_an_error_at_import_names_its_line(tmp_path):
    made = made_app(tmp_path / "app", "pass")
    code = tmp_path / "app" / "made.py"
    code.write_text(code.read_text() + "\nprint(unknown)\n")
    line = line_of(code, "print(unknown)")
    with pytest.raises(UserError, match=rf"'unknown' is not defined \(made.py, line {line}, in <module>\)"):
        app_run(tmp_path / "run", flower=made)
    assert not (tmp_path / "run").exists()
