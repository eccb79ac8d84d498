"""A microcontroller among the devices of the main scenario: refused and reported, and the run goes on."""

import pyarrow.parquet as pq

import edgefl
from edgefl.fleet import load_profile
from edgefl.scenario import load_scenario


def test_a_device_without_the_memory_is_refused_and_reported_and_the_run_goes_on(tmp_path):
    fleet = [
        {"profile": "raspberry-pi-5", "share": 0.8, "link": "5g"},
        {"profile": "rp2040-board", "share": 0.2, "link": "5g"},
    ]
    scenario = load_scenario(
        "5g_100clients",
        overrides={"fleet": fleet, "methods": ["fedavg"], "seeds": [0], "training.rounds": 4, "stop": "rounds"},
    )
    edgefl.simulate(scenario, out=tmp_path / "run", train=False)
    (log,) = (tmp_path / "run").rglob("events.parquet")
    events = pq.read_table(log).to_pylist()
    refused = [event for event in events if event["kind"] == "refused"]
    assert refused
    memory = load_profile("rp2040-board").memory.training
    for event in refused:
        assert event["item"] == "rp2040-board"
        assert event["bytes"] > memory.high
    # A refused client neither computes nor sends, and every round is closed by the others.
    turned_away = {event["client"] for event in refused}
    assert not turned_away & {event["client"] for event in events if event["kind"] == "compute_start"}
    assert sum(event["kind"] == "round_end" for event in events) == 4
    (rounds,) = (tmp_path / "run").rglob("rounds.parquet")
    assert all(count > 0 for count in pq.read_table(rounds)["aggregated"].to_pylist())
