"""What becomes of messages that are late, queued, wrong or shared, as Flower's SuperLink and SuperNodes do it."""

from contextlib import nullcontext

import pytest

from .runs import answers, app_run, check, events_of, made_app, needs_flwr, summary_of

pytestmark = needs_flwr

ONE = {"data": {"clients": 1}}


def test_an_infinite_time_out_waits_for_every_reply(tmp_path):
    assert answers(tmp_path, "say(len(grid.send_and_receive(messages(grid), timeout=float('inf'))))")[1] == [4]


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


ACCURACIES = {
    "rounded": ([0.5, 1.0000001], [0.5, 1.0]),
    "per cent": ([12.5, 0.5, 100.00001], [0.125, 0.005, 1.0]),
    "of no samples": ([float("nan"), 0.25], [0.25]),
}


@pytest.mark.parametrize("what", ACCURACIES)
def test_accuracies_are_shares_or_per_cent_and_nan_is_none(tmp_path, what):
    given, expected = ACCURACIES[what]
    server = f"""
    from flwr.serverapp.strategy import Result
    result = Result()
    for number, value in enumerate([{", ".join(f"float('{each}')" for each in given)}], 1):
        grid.send_and_receive(messages(grid, "train"))
        result.evaluate_metrics_serverapp[number] = MetricRecord({{"accuracy": value}})
    """
    said_so = pytest.warns(UserWarning, match="read as per cent") if what == "per cent" else nullcontext()
    with said_so:
        paths = app_run(tmp_path / "run", flower=made_app(tmp_path / "app", server))
    assert [row.value for row in events_of(paths, "flower", 0, "evaluation")] == pytest.approx(expected)


MODS = """
from flwr.clientapp import ClientApp

def alone(message, context, call_next):
    if message.metadata.message_type == "train.keys":
        return Message(RecordDict({"of": ConfigRecord({"none": [], "text": ""})}), reply_to=message)
    return call_next(message, context)

client = ClientApp(mods=[alone])

@client.train("keys")
@client.train("model")
def train(message, context):
    return Message(RecordDict(), reply_to=message)
"""


@pytest.mark.parametrize("seconds", [{"train": "30 s"}, {}])
def test_an_exchange_that_a_mod_answers_takes_no_seconds_of_training(tmp_path, seconds):
    """As three of the four exchanges of secure aggregation; without declared seconds a note tells what is missing."""
    server = "for kind in ('train.keys', 'train.model'):\n    grid.send_and_receive(messages(grid, kind, group_id='1'))"
    flower = made_app(tmp_path / "app", server) | {"seconds": seconds}
    file = tmp_path / "app" / "made.py"
    text = file.read_text()
    file.write_text(text[: text.index("@client.train")] + MODS + text[text.index("@server.main") :])
    with nullcontext() if seconds else pytest.warns(UserWarning, match="declare its seconds: --set 'flower.seconds="):
        paths = app_run(tmp_path / "run", flower=flower, **ONE)
    check(paths)
    took = [row.seconds for row in events_of(paths, "flower", 0, "compute_end")]
    assert took == ([0, 30] if seconds else [0, 0])
    assert summary_of(paths)["rounds"] == 1
