"""A run over TCP connections and one queue can be planned, interrupted, replayed and checked like any other."""

import pytest

from edgefl.experiment import resume, run
from edgefl.experiment.directory import read_run_summary
from edgefl.planning.planning import plan
from edgefl.rerun.replay import replay
from edgefl.rerun.verify import verify

from ..small_runs import Stop, tree

TCP = {
    "kind": "tcp", "packet_bytes": 100, "initial_window": 2, "keep_alive": "1 s", "handshake": "tls_0rtt",
    "loss": 0.02, "queue": "fifo",
}  # fmt: skip
METHODS = ["fedavg", {"method": "fedadc", "overlap": True}]
PROTOCOLS = [{"kind": "synchronous"}, {"kind": "asynchronous", "buffer": 2, "concurrency": 4}]


@pytest.fixture
def over_tcp(small):
    """The small scenario over TCP; the server's link is shared."""

    def make(**options):
        slow = {"network__topology__server__down": "200 kbit/s", "network__topology__server__up": "200 kbit/s"}
        return small(**{"methods": METHODS, "training__rounds": 4, "network__transport": TCP, **slow, **options})

    return make


@pytest.mark.full
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=["synchronous", "asynchronous"])
def test_a_resumed_run_is_byte_identical(over_tcp, tmp_path, protocol):
    scenario = over_tcp(protocol=protocol, methods=["fedavg"])
    expected = run(scenario, out=tmp_path / "expected")
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=tmp_path / "run", listeners=[Stop(2)])
    assert tree(resume(tmp_path / "run")) == tree(expected)
    assert verify(expected) == []


@pytest.mark.full
def test_a_replay_over_tcp_equals_a_full_run(over_tcp, small, tmp_path):
    expected = run(over_tcp(), out=tmp_path / "expected")
    server = {f"network.topology.server.{way}": "200 kbit/s" for way in ("down", "up")}
    finished = run(small(methods=METHODS, training__rounds=4), out=tmp_path / "run")
    assert tree(replay(finished, {"network.transport": TCP, **server}, tmp_path / "replayed")) == tree(expected)


def test_a_plan_is_what_the_run_then_takes(over_tcp, tmp_path):
    scenario = over_tcp()
    folder = run(scenario, out=tmp_path / "run", train=False)
    assert verify(folder) == []
    summary = read_run_summary(folder)
    for each in plan(scenario).methods:
        (entry,) = summary.methods[each.label]
        assert each.seconds * each.rounds == pytest.approx(entry.seconds, rel=1e-9)
