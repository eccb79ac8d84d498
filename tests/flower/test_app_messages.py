"""What becomes of messages that are late, queued, wrong or shared, as Flower's SuperLink and SuperNodes do it."""

from __future__ import annotations

import pytest

from .runs import app_run, events_of, made_app, needs_flwr, said, summary_of
from .test_app_runs import check

pytestmark = needs_flwr

ONE = {"data": {"clients": 1}}


def answers(tmp_path, server, client="return Message(RecordDict(), reply_to=message)", **keys):
    """The checked run directory of such an app, and what its server said."""
    paths = app_run(tmp_path / "run", flower=made_app(tmp_path / "app", server, client), **keys)
    check(paths)
    return paths, said(tmp_path / "app")


def test_a_negative_time_out_is_over_at_once(tmp_path):
    paths, found = answers(tmp_path, "say(len(grid.send_and_receive(messages(grid), timeout=-3)))")
    assert found == [0]
    assert summary_of(paths)["seconds"] == 0


def test_an_infinite_time_out_waits_for_every_reply(tmp_path):
    assert answers(tmp_path, "say(len(grid.send_and_receive(messages(grid), timeout=float('inf'))))")[1] == [4]


def test_seconds_that_are_no_number_are_an_error_of_the_app(tmp_path):
    server = """
    for act in (lambda: time.sleep(float("nan")), lambda: time.sleep(-1),
                lambda: grid.send_and_receive(messages(grid), timeout=float("nan"))):
        try:
            act()
        except ValueError as error:
            say(str(error))
    """
    found = answers(tmp_path, server)[1]
    assert len(found) == 3
    assert all("expected" in each for each in found)


def test_a_message_can_be_made_after_a_very_long_sleep(tmp_path):
    server = "time.sleep(1e12)\nsay(len(messages(grid)))"
    assert answers(tmp_path, server)[1] == [4]


def test_messages_that_wait_for_a_crashed_device_are_lost_with_it(tmp_path):
    server = """
    ids = grid.push_messages(messages(grid) + messages(grid))
    time.sleep(30)
    say(len(grid.pull_messages(ids)))
    time.sleep(31)
    say(codes(grid.pull_messages(ids)))
    """
    failures = [{"kind": "crash", "client": 0, "at": "0.5 s", "duration": "1000 s"}]
    assert answers(tmp_path, server, failures=failures, **ONE)[1] == [0, [5, 5]]


def test_a_message_that_expires_in_the_queue_is_never_sent(tmp_path):
    server = """
    first, second = messages(grid), messages(grid, ttl=0.5)
    say(codes(grid.send_and_receive(first + second)))
    """
    paths, found = answers(tmp_path, server, **ONE)
    assert found == [[0, 3]]
    assert len([row for row in events_of(paths) if row.kind == "transfer_start" and row.item == "down"]) == 1


def test_the_time_to_live_begins_when_a_message_is_made(tmp_path):
    server = """
    made = messages(grid, ttl=3)
    time.sleep(2.75)
    say(codes(grid.send_and_receive(made)))
    """
    paths, found = answers(tmp_path, server, **ONE)
    assert found == [[3]]
    assert summary_of(paths)["seconds"] == 3


def test_replies_can_be_pulled_one_message_after_another(tmp_path):
    client = "time.sleep(10 * (4 - partition))\nreturn Message(RecordDict(), reply_to=message)"
    server = """
    waiting, found = list(grid.push_messages(messages(grid))), []
    while waiting:
        for number in list(waiting):
            if grid.pull_messages([number]):
                waiting.remove(number)
                found.append(int(number, 16))
    say(found)
    """
    # 0 looks, 1 waits until 3 has replied, and 2 until it has itself; 0 then waits until 1 has.
    assert answers(tmp_path, server, client)[1] == [[2, 3, 1, 0]]


def test_the_server_cannot_change_the_state_of_a_node_by_its_reply(tmp_path):
    client = """
    known = context.state.setdefault("known", MetricRecord({"value": 1}))
    return Message(RecordDict({"known": known}), reply_to=message)
    """
    server = """
    for _ in range(2):
        (reply,) = grid.send_and_receive(messages(grid))
        say(reply.content["known"]["value"])
        reply.content["known"]["value"] = 7
    """
    assert answers(tmp_path, server, client, **ONE)[1] == [1, 1]


def test_a_client_that_exits_is_an_error_of_its_own(tmp_path):
    with pytest.warns(UserWarning, match="client 0: the ClientApp raised SystemExit"):
        found = answers(tmp_path, "say(codes(grid.send_and_receive(messages(grid))))", "raise SystemExit(3)", **ONE)
    assert found[1] == [[2]]  # CLIENT_APP_RAISED_EXCEPTION


def test_a_message_that_is_no_reply_is_an_error_of_the_client(tmp_path):
    client = "return Message(RecordDict(), 1, 'query')"
    with pytest.warns(UserWarning, match="expected a reply to the message"):
        found = answers(tmp_path, "say(codes(grid.send_and_receive(messages(grid))))", client, **ONE)
    assert found[1] == [[2]]


def test_metrics_of_numpy_and_of_given_results_count_and_results_can_be_pickled(tmp_path):
    server = """
    import pickle
    from flwr.serverapp.strategy import Result
    grid.send_and_receive(messages(grid, "train"))
    result = Result(evaluate_metrics_serverapp={1: {"accuracy": numpy.float32(0.25)}})
    say(pickle.loads(pickle.dumps(result)).evaluate_metrics_serverapp[1]["accuracy"].item())
    """
    paths, found = answers(tmp_path, server)
    assert found == [0.25]
    assert [row.value for row in events_of(paths, "flower", 0, "evaluation")] == [0.25]
