"""Whole runs of apps in virtual time, against hand computation."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.experiment import RunsFailed
from edgefl.fleet import load_profile
from edgefl.flower.app import loaded
from edgefl.flower.scenario import AppSpec
from edgefl.flower.virtual_time import AppTime, virtual_time
from edgefl.record import RunPaths
from edgefl.rerun.verify import verify

from .runs import APPS, DOWN, LATENCY, UP, answers, app_run, check, events_of, made_app, needs_flwr, said, summary_of

pytestmark = needs_flwr

LEGACY = {"app": str(APPS / "legacy"), "seconds": {"train": "7 s", "evaluate": "1 s", "query": "2 s"}}


def transferred(paths, *items):
    return [row for row in events_of(paths, "flower", 0, "transfer_end") if row.item in items]


@pytest.fixture(scope="module")
def current(tmp_path_factory):
    return app_run(tmp_path_factory.mktemp("runs") / "current")


def test_a_round_of_an_app_takes_its_transfers_and_its_work(current):
    check(current)
    time = 0.0
    for row in events_of(current, "flower", 0, "round_end"):
        own = [each for each in events_of(current) if each.round == row.round and each.client == row.client]
        sent = {each.item: each.bytes for each in own if each.kind == "transfer_end"}
        (work,) = {each.seconds for each in own if each.kind == "compute_end"}
        time += 2 * LATENCY + 8 * sent["down"] / DOWN + 8 * sent["up"] / UP + work
        assert row.time == pytest.approx(time, abs=1e-9)
    assert summary_of(current)["seconds"] == pytest.approx(time, abs=1e-9)


def test_work_is_counted_from_the_operators_that_the_client_executes(current):
    (step,) = json.loads(current.costs.read_text())["flower"]
    operators = {(name, flops): count for name, flops, _, count, _ in step["operators"]}
    # Two local steps; a linear layer from 64 pixels to 10 digits, on batches of 32.
    assert operators["addmm", 2 * 32 * 64 * 10 + 32 * 10] == 2
    assert operators["mm", 2 * 32 * 64 * 10] == 2
    pi = load_profile("raspberry-pi-5")
    roofline = sum(
        count * (max(flops / pi.rates(kind=kind)[0], bytes / pi.rates(kind=kind)[1]) + pi.rates(kind=kind)[2])
        for _, flops, bytes, count, kind in step["operators"]
    )
    for row in events_of(current, "flower", 0, "compute_end"):
        assert row.seconds == pytest.approx(roofline + 2 * pi.rates()[3], rel=1e-9)
        assert row.value == 2


def test_the_metrics_of_an_app_are_those_of_the_run(current):
    found = [row.value for row in events_of(current, "flower", 0, "evaluation")]
    assert len(found) == 3
    assert summary_of(current)["accuracy"]["final"] == found[-1] > 0.5


def test_equal_runs_of_an_app_are_equal_byte_for_byte(current, tmp_path):
    again = app_run(tmp_path / "again")
    one, two = current.of("flower", 0), again.of("flower", 0)
    for first, second in (
        (current.summary, again.summary),
        (current.costs, again.costs),
        (one.events, two.events),
        (one.rounds, two.rounds),
    ):
        assert first.read_bytes() == second.read_bytes(), first.name
    other = app_run(tmp_path / "other", seeds=[1])
    assert summary_of(other)["accuracy"] != summary_of(current)["accuracy"]


def test_clients_evaluate_if_the_app_asks_them(tmp_path):
    paths = app_run(
        tmp_path / "run",
        flower={"app": str(APPS / "current"), "run_config": {"fraction-evaluate": 1.0, "num-server-rounds": 1}},
    )
    check(paths)
    assert len(transferred(paths, "down")) == len(transferred(paths, "up")) == 8
    (row,) = events_of(paths, "flower", 0, "evaluation")
    assert 0.3 < row.value < 1
    assert events_of(paths, "flower", 0, "aggregation")[0].value == 8


def test_an_error_of_a_client_is_a_message_and_the_round_goes_on(tmp_path):
    flower = {"app": str(APPS / "current"), "run_config": {"behaviour": "raises", "num-server-rounds": 1}}
    with pytest.warns(UserWarning, match="client 0: the ClientApp raised RuntimeError: no data here"):
        paths = app_run(tmp_path / "run", flower=flower)
    check(paths)
    (row,) = events_of(paths, "flower", 0, "aggregation")
    assert row.facts["clients"] == [1, 2, 3]
    assert [each.client for each in events_of(paths, "flower", 0, "lost")] == [0]


def test_sleep_in_a_client_takes_virtual_seconds(current, tmp_path):
    flower = {"app": str(APPS / "current"), "run_config": {"behaviour": "sleeps", "num-server-rounds": 1}}
    paths = app_run(tmp_path / "run", flower=flower)
    check(paths)
    usual = events_of(current, "flower", 0, "compute_end")[0].seconds
    slept = [row.seconds for row in events_of(paths, "flower", 0, "compute_end") if row.client == 0]
    assert slept == [pytest.approx(100 + usual, abs=1e-9)]


def test_a_round_ends_at_its_time_out_without_the_late_client(tmp_path):
    config = {"behaviour": "sleeps", "num-server-rounds": 2, "timeout": 5.0}
    paths = app_run(tmp_path / "run", flower={"app": str(APPS / "current"), "run_config": config})
    check(paths)
    ends = events_of(paths, "flower", 0, "round_end")
    assert [row.time for row in ends] == [pytest.approx(5, abs=1e-9), pytest.approx(10, abs=1e-9)]
    assert [row.facts["clients"] for row in events_of(paths, "flower", 0, "aggregation")] == [[1, 2, 3], [1, 2, 3]]
    sent = [row for row in events_of(paths, "flower", 0, "transfer_start") if row.item == "down"]
    assert [row.client for row in sent].count(0) == 1  # its second message waits until it has slept
    assert [row.client for row in sent].count(1) == 2


def test_a_legacy_app_runs_with_its_threads_in_virtual_time(tmp_path):
    paths = app_run(tmp_path / "run", flower=LEGACY)
    check(paths)
    assert [row.value for row in events_of(paths, "flower", 0, "evaluation")] == pytest.approx([0.015, 0.03])
    assert [row.facts["loss"] for row in events_of(paths, "flower", 0, "evaluation")] == pytest.approx([1.5, 3.0])
    # One client gives the initial model; then all clients act side by side, on links of their own.
    initial, *rest = transferred(paths, "down")
    first = next(row for row in transferred(paths, "up") if row.client == initial.client)
    time = 2 * LATENCY + 8 * initial.bytes / DOWN + 8 * first.bytes / UP + 2
    for row in events_of(paths, "flower", 0, "round_end"):
        for phase, seconds in ((0, 7), (1, 1)):
            down = [each.bytes for each in rest if each.round == row.round and each.client == 3][phase]
            ups = [each for each in transferred(paths, "up") if each.round == row.round and each.client == 3]
            up = [each.bytes for each in ups if each.dispatch != 0 or initial.client != 3][phase]
            time += 2 * LATENCY + 8 * down / DOWN + 8 * up / UP + seconds
        assert row.time == pytest.approx(time, abs=1e-9)


@pytest.mark.full
def test_equal_runs_are_equal_byte_for_byte_also_in_another_process(tmp_path):
    one = app_run(tmp_path / "one", flower=LEGACY)
    code = (
        "from pathlib import Path; from tests.flower.runs import app_run; "
        f"app_run(Path({str(tmp_path / 'two')!r}), flower={LEGACY!r})"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, env={**os.environ, "PYTHONHASHSEED": "1"})
    two = RunPaths(tmp_path / "two")
    assert one.of("flower", 0).events.read_bytes() == two.of("flower", 0).events.read_bytes()


def test_a_legacy_client_with_an_error_is_a_failure_of_its_round_only(tmp_path):
    flower = {**LEGACY, "run_config": {"raises": True}}
    with pytest.warns(UserWarning, match="client 1: the ClientApp raised ValueError: cannot add"):
        paths = app_run(tmp_path / "run", flower=flower)
    check(paths)
    # The mean of the numbers 0, 2 and 3 is added in each round; all clients evaluate, in hundredths.
    found = [row.value for row in events_of(paths, "flower", 0, "evaluation")]
    assert found == pytest.approx([5 / 300, 10 / 300])


def test_several_configurations_of_an_app_are_methods_side_by_side(tmp_path):
    methods = [{"as": "slow", "run_config": {"lr": 0.0}}, {"as": "fast", "run_config": {"lr": 0.5}}]
    paths = app_run(tmp_path / "run", methods=methods, targets=[0.5], stop="target")
    check(paths)
    assert summary_of(paths, "fast")["stop"] == {"reason": "target", "round": 2}
    assert summary_of(paths, "slow")["stop"]["reason"] == "rounds"
    assert summary_of(paths, "fast")["targets"][0]["seconds"] == summary_of(paths, "fast")["seconds"]


def test_time_passes_only_while_the_server_waits(tmp_path):
    server = """
    ids = grid.push_messages(messages(grid))
    for seconds in (0, 0.5, 4, 0):
        time.sleep(seconds)
        say(len(grid.pull_messages(ids)))
    """
    paths, found = answers(tmp_path, server)
    assert found == [0, 0, 4, 0]
    assert summary_of(paths)["seconds"] == 4.5


def test_a_server_that_polls_without_sleeping_waits_for_the_next_reply(tmp_path):
    client = "time.sleep(partition)\nreturn Message(RecordDict(), reply_to=message)"
    server = """
    ids, replies, polls = grid.push_messages(messages(grid)), [], 0
    while len(replies) < 4:
        replies += grid.pull_messages(ids)
        polls += 1
    say(polls)
    """
    paths, found = answers(tmp_path, server, client)
    assert found == [5]  # the first one only looks; each further one waits for one reply
    last = max(row.time for row in transferred(paths, "up"))
    assert summary_of(paths)["seconds"] == last > 4


def test_a_lost_device_is_an_unavailable_node_after_its_heartbeats(tmp_path):
    fleet = [
        {"profile": "raspberry-pi-5", "count": 3, "link": "wifi"},
        {"profile": "raspberry-pi-5", "count": 1, "link": "wifi", "dropout": 1},
    ]
    paths, found = answers(tmp_path, "say(codes(grid.send_and_receive(messages(grid))))", fleet=fleet)
    assert found == [[0, 0, 0, 5]]  # NODE_UNAVAILABLE
    (gone,) = events_of(paths, "flower", 0, "dropout")
    assert gone.item == "accident"
    assert summary_of(paths)["seconds"] == pytest.approx(gone.time + 60, abs=1e-9)


def test_work_that_does_not_fit_the_memory_is_refused(tmp_path):
    client = "torch.zeros(250, dtype=torch.int8)\nreturn Message(RecordDict(), reply_to=message)"
    flower = made_app(tmp_path / "app", "say(codes(grid.send_and_receive(messages(grid, 'evaluate'))))", client)
    for memory, codes in (("250 B", [0]), ("249 B", [8])):  # CLIENT_APP_CRASHED
        small = {"memory": {"training": memory}}
        fleet = [{"profile": "raspberry-pi-5", "share": 1, "link": "wifi", "overrides": small}]
        paths = app_run(tmp_path / memory, flower={"app": flower["app"]}, fleet=fleet, data={"clients": 1})
        check(paths)
        assert said(tmp_path / "app")[-1] == codes
        assert len(events_of(paths, "flower", 0, "refused")) == (codes == [8])


def test_the_state_of_a_node_is_kept_and_its_messages_wait_for_each_other(tmp_path):
    client = """
    calls = context.state.setdefault("calls", MetricRecord({"count": 0}))
    calls["count"] += 1
    of = context.node_config["num-partitions"]
    numbers = MetricRecord({"count": calls["count"], "partition": partition, "of": of})
    return Message(RecordDict({"numbers": numbers}), reply_to=message)
    """
    server = """
    replies = grid.send_and_receive(messages(grid) + messages(grid))
    say(sorted([each.content["numbers"]["partition"], each.content["numbers"]["count"]] for each in replies))
    say(sorted({each.content["numbers"]["of"] for each in replies}))
    """
    paths, found = answers(tmp_path, server, client, data={"clients": 2})
    assert found == [[[0, 1], [0, 2], [1, 1], [1, 2]], [2]]
    assert summary_of(paths)["seconds"] > 2


def test_neither_side_sees_what_the_other_one_changes_in_a_message(tmp_path):
    client = "message.content['config']['value'] = 7\nreturn Message(RecordDict(), reply_to=message)"
    server = """
    content = RecordDict({"config": ConfigRecord({"value": 1})})
    grid.send_and_receive(messages(grid, content=content))
    say(content["config"]["value"])
    """
    assert answers(tmp_path, server, client)[1] == [1]


def test_draws_of_clients_do_not_depend_on_each_other(tmp_path):
    client = """
    draws = [random.random(), float(numpy.random.rand()), float(torch.rand(1))]
    for _ in range(partition):
        random.random(), torch.rand(1)
    return Message(RecordDict({"draws": MetricRecord({"values": draws})}), reply_to=message)
    """
    server = """
    found = {}
    nodes = list(grid.get_node_ids())
    for node in (nodes if context.run_config["file"].endswith("one/said") else nodes[::-1]):
        (reply,) = grid.send_and_receive([Message(RecordDict(), node, "query")])
        found[node] = reply.content["draws"]["values"]
    say(sorted(found.items()))
    say(random.random())
    """
    for name in ("one", "two"):
        app_run(tmp_path / f"run {name}", flower=made_app(tmp_path / name, server, client))
    assert said(tmp_path / "one") == said(tmp_path / "two")
    draws = [tuple(values) for _, values in said(tmp_path / "one")[0]]
    assert len(set(draws)) == 4


def test_bytes_are_those_of_the_objects_that_flower_sends(tmp_path):
    server = """
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
    content = RecordDict({"arrays": ArrayRecord([numpy.arange(100.0)]), "empty": ConfigRecord({"text": ""})})
    (message,) = messages(grid, content=content)
    say(sum(len(each.deflate()) for each in get_all_nested_objects(message).values()))
    grid.send_and_receive([message])
    """
    paths = app_run(tmp_path / "run", flower=made_app(tmp_path / "app", server), data={"clients": 1})
    (down,) = (row for row in events_of(paths, "flower", 0, "transfer_start") if row.item == "down")
    # An array is a .npy file: a header of 128 bytes and 8 bytes a number. Names count: "0" and "text".
    chunk = 128 + 800
    assert down.facts["parts"]["content"] == chunk + len("0") + len("text")

    def object_bytes(kind, children, body):
        return len(kind) + 1 + max(65 * children - 1, 0) + 1 + len(str(body)) + 1 + body

    meta = len(json.dumps({"dtype": "float64", "shape": [100], "stype": "numpy.ndarray", "arraychunk_ids": [0]}))
    objects = object_bytes("ArrayChunk", 0, chunk) + object_bytes("Array", 1, meta)
    whole = down.facts["parts"]["content"] + down.facts["parts"]["framing"]
    # What is left are the two records, the dictionary of them and the message, each with a short body.
    left = whole - objects - (len("ArrayRecord") + len("ConfigRecord") + len("RecordDict") + len("Message") + 4 * 65)
    assert 0 < left < 400
    assert down.bytes == whole == said(tmp_path / "app")[0]


def test_a_thread_of_the_app_may_not_use_the_grid(tmp_path):
    server = """
    import threading
    def act():
        try:
            grid.send_and_receive(messages(grid))
        except Exception as error:
            say(type(error).__name__)
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
    """
    with pytest.raises(RunsFailed, match="in a thread that it started itself"):
        app_run(tmp_path / "run", flower=made_app(tmp_path / "app", server))
    assert said(tmp_path / "app") == ["UserError"]


def test_verification_finds_a_changed_log_and_a_changed_app(tmp_path):
    flower = made_app(tmp_path / "app", "grid.send_and_receive(messages(grid))")
    paths = app_run(tmp_path / "run", flower=flower)
    summary = json.loads(paths.summary.read_text())
    summary["methods"]["flower"][0]["seconds"] += 1
    paths.summary.write_text(json.dumps(summary))
    run = tmp_path / "run"
    (found,) = verify(run)
    assert found.startswith("flower, seed 0: seconds: summary.json has")
    (tmp_path / "app" / "made.py").write_text("")
    (found,) = verify(run)
    assert found.endswith("flower.app: is not the file that the run read")


def test_the_metric_of_a_scenario_is_the_accuracy(tmp_path):
    server = """
    from flwr.serverapp.strategy import Result
    result = Result()
    for number, values in enumerate([{"accuracy": 0.9}, {"top5": 0.5, "accuracy": 0.25, "loss": 2.0}, {"top5": 0.75}]):
        if number:
            grid.send_and_receive(messages(grid, "train"))
        result.evaluate_metrics_serverapp[number] = MetricRecord(values)
    """
    flower = made_app(tmp_path / "app", server)
    found = []
    for name, metric in (("usual", None), ("chosen", "top5")):
        paths = app_run(tmp_path / name, flower={**flower, "metric": metric})
        check(paths)
        found.append([(row.round, row.value) for row in events_of(paths, "flower", 0, "evaluation")])
    assert found == [[(1, 0.25)], [(1, 0.5), (2, 0.75)]]
    assert events_of(paths, "flower", 0, "evaluation")[0].facts["loss"] == 2
    with pytest.warns(UserWarning, match=r"flower\.metric: expected .* \(accuracy, loss, top5\), found 'recall'"):
        app_run(tmp_path / "none", flower={**flower, "metric": "recall"})
    code = tmp_path / "app" / "made.py"
    code.write_text(code.read_text().replace('"accuracy"', '"share"'))
    with pytest.warns(UserWarning, match=r"none of the app's metrics is an accuracy \(loss, share, top5\)"):
        app_run(tmp_path / "unnamed", flower=flower)


def test_workers_of_a_data_loader_are_reported(tmp_path):
    client = """
    list(torch.utils.data.DataLoader([1, 2], num_workers=1))
    return Message(RecordDict(), reply_to=message)
    """
    flower = made_app(tmp_path / "app", "grid.send_and_receive(messages(grid))", client)
    with pytest.warns(UserWarning, match="the app's DataLoader has worker processes"):
        app_run(tmp_path / "run", flower=flower, data={"clients": 1})


def test_a_run_of_an_app_is_simulated_again_in_place_of_a_replay(current, tmp_path, capsys):
    run = current.scenario.parent
    changes = ["--set", "network.links.wifi.up=1 Mbit/s"]
    assert main(["replay", str(run), *changes, "--out", str(tmp_path / "replayed")]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert f"simulate it again, with edgefl simulate {run / 'scenario.yaml'} --set" in message
    # What the message says to do.
    assert main(["simulate", str(current.scenario), *changes, "--out", str(tmp_path / "again")]) == 0
    again = RunPaths(tmp_path / "again")
    check(again)
    (up,) = {row.bytes for row in transferred(again, "up")}
    assert [row.seconds for row in transferred(again, "up")] == pytest.approx([LATENCY + 8 * up / 1e6] * 12)
    assert summary_of(again)["accuracy"] == summary_of(current)["accuracy"]


def edited(folder, file, *change):
    """An app of which one file is changed, or replaced."""
    flower = made_app(folder, "pass")
    text = (folder / file).read_text()
    assert change[0] in text or len(change) == 1
    (folder / file).write_text(text.replace(*change) if len(change) == 2 else change[0])
    return flower


WRONG = {
    "an unknown key": (lambda _: {"app": str(APPS / "current"), "run_config": {"lrr": 1}}, "did you mean 'lr'"),
    "no app": (lambda _: {"app": str(APPS)}, r"pyproject.toml: flower.app: no such file"),
    "no TOML": (
        lambda folder: edited(folder, "pyproject.toml", "[project]", "[[["),
        "pyproject.toml of a Flower app: Invalid initial character",
    ),
    "no colon": (
        lambda folder: edited(folder, "pyproject.toml", '"made:server"', '"made"'),
        "serverapp: expected MODULE:NAME, such as app.server:app, found 'made'",
    ),
    "other components": (
        lambda folder: edited(folder, "made.py", "server = client = 3"),
        r"app: flower\.app: expected ServerApp as 'made:server'",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_app_is_refused_before_anything_is_written(tmp_path, what):
    flower, message = WRONG[what]
    with pytest.raises(UserError, match=message):
        app_run(tmp_path / "run", flower=flower(tmp_path / "app"))
    assert not (tmp_path / "run").exists()


def test_a_module_that_keeps_the_function_sleep_sleeps_in_the_present_run():
    kept, calls = [], []

    class Clock(AppTime):
        def sleep(self, seconds):
            calls.append((self, seconds))

    clocks = [Clock(), Clock()]
    for number, clock in enumerate(clocks):
        with virtual_time(clock):
            if not number:
                kept.append(time.sleep)
            kept[0](number + 1)
    kept[0](0)
    assert calls == [(clocks[0], 1), (clocks[1], 2)]


def test_packages_of_an_environment_in_the_folder_are_imported_once(tmp_path, monkeypatch):
    spec = AppSpec.model_validate(made_app(tmp_path / "app", "pass"))
    packages = tmp_path / "app" / "venv" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "edgefl_test_package.py").write_text("value = 1")
    monkeypatch.syspath_prepend(str(packages))
    code = tmp_path / "app" / "made.py"
    code.write_text(code.read_text() + "\nimport edgefl_test_package")
    with loaded(spec):
        first = sys.modules["edgefl_test_package"]
    assert "made" not in sys.modules
    with loaded(spec):
        assert sys.modules["edgefl_test_package"] is first
    monkeypatch.delitem(sys.modules, "edgefl_test_package")


def test_a_crashed_node_is_unavailable_until_it_restarts(tmp_path):
    server = """
    say(codes(grid.send_and_receive(messages(grid))))
    say(len(grid.get_node_ids()))
    time.sleep(100)
    say(codes(grid.send_and_receive(messages(grid))))
    """
    failures = [{"kind": "crash", "client": 2, "at": "0.5 s", "duration": "100 s"}]
    paths, found = answers(tmp_path, server, failures=failures)
    assert found == [[0, 0, 0, 5], 3, [0, 0, 0, 0]]
    (gone,) = events_of(paths, "flower", 0, "dropout")
    assert (gone.time, gone.item) == (0.5, "crash")
