"""Network sections of a scenario, scaled links, and one transfer alone."""

import json
import math
import warnings

import networkx as nx
import numpy as np
import pytest
import simpy
from pydantic import TypeAdapter

from edgefl.errors import UserError
from edgefl.network import ClientLinks, FlowNetwork, GraphLinks, LinkSpec, NetworkSpec, TreeLinks, build_topology
from edgefl.validation import validated

SCENARIO = {
    "topology": {"kind": "star", "server": {"down": "1 Gbit/s", "up": "1 Gbit/s"}, "latency": "20 ms"},
    "links": {
        "5g": {
            "down": {"kind": "uniform", "low": "40 Mbit/s", "high": "280 Mbit/s"},
            "up": {"kind": "uniform", "low": "40 Mbit/s", "high": "280 Mbit/s"},
            "redraw": "10 rounds",
        },
        "wifi": {"down": "54 Mbit/s", "up": {"kind": "constant", "rate": 6e6}, "latency": "5 ms"},
    },
}


@pytest.mark.parametrize(
    ("down", "latency", "told"),
    [
        (40, 0, ["40 without a unit is 40 bit/s; did you mean '40 Mbit/s'?"]),
        ("40 bit/s", 20, ["20 without a unit is 20 s; did you mean '20 ms'?"]),
        (40.0, "20 s", ["40.0 without a unit is 40 bit/s; did you mean '40.0 Mbit/s'?"]),
        (4000, "5 s", ["4000 without a unit is 4 kbit/s; did you mean '4000 kbit/s'?"]),
        (
            2.5,
            1,
            [
                "2.5 without a unit is 2.5 bit/s; did you mean '2.5 Mbit/s'?",
                "1 without a unit is 1 s; did you mean '1 ms'?",
            ],
        ),
        (2e5, 0.5, []),
    ],
)
def test_a_number_that_is_rarely_meant_without_a_unit_is_mentioned(down, latency, told):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        LinkSpec(down=down, up="1 Mbit/s", latency=latency)
    assert [str(each.message) for each in caught] == told


def test_the_contract_scenario_is_read_and_written_back_unchanged():
    spec = NetworkSpec.model_validate(SCENARIO)
    assert spec.links["wifi"].down.rate == 54e6
    assert NetworkSpec.model_validate(json.loads(spec.model_dump_json())) == spec
    TypeAdapter(NetworkSpec).json_schema()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"down": {"kind": "uniform", "low": "9 Mbit/s", "high": "1 Mbit/s"}}, "low at most high"),
        ({"down": "5 mbit/s"}, "Mbit/s"),
        ({"down": {"kind": "unifrom", "low": 1, "high": 2}}, "uniform"),
        ({"redraw": "0 rounds"}, "10 rounds"),
        ({"redraw": "10 rounds", "down": 1e6, "up": 1e6}, "neither down nor up is drawn"),
        ({"delay": 3}, "delay"),
        ({"down": {"kind": "process", "quantiles": {10: 5e6, 50: 4e6}}}, "rise"),
        ({"down": {"kind": "process", "like": "4g_drivin"}}, "4g_driving"),
    ],
)
def test_wrong_links_are_refused_with_the_reason(change, message):
    with pytest.raises(UserError, match=message):
        validated(LinkSpec, {**SCENARIO["links"]["5g"], **change})


def test_a_star_has_the_latency_of_each_clients_link_and_the_servers_rates():
    spec = NetworkSpec.model_validate(SCENARIO)
    topology = build_topology(spec.topology, spec.links, ["5g", "wifi"])
    latencies = [sum(topology.latency[k] for k in topology.path("server", f"client/{c}")) for c in (0, 1)]
    assert latencies == [0.02, 0.005]
    assert topology.capacity[topology.link("server", "internet")] == 1e9
    with pytest.raises(UserError, match="5g"):
        build_topology(spec.topology, spec.links, ["5gg"])


def test_draws_change_every_ten_rounds_and_by_nothing_else():
    spec = NetworkSpec.model_validate(SCENARIO)
    names = ["5g", "wifi"] * 500
    links = ClientLinks(spec.links, names, seed=3)
    down = links.capacities("down", 0)
    drawn = down[::2]
    assert (drawn >= 40e6).all()
    assert (drawn < 280e6).all()
    assert drawn.mean() == pytest.approx(160e6, rel=0.06)
    assert (down[1::2] == 54e6).all()
    assert (links.capacities("down", 9) == down).all()
    assert not (links.capacities("down", 10)[::2] == drawn).any()
    assert not (links.capacities("up", 0)[::2] == drawn).any()
    assert not (ClientLinks(spec.links, names, seed=4).capacities("down", 0)[::2] == drawn).any()
    # Nobody's capacity depends on who else has the link, nor on whether others are asked first.
    alone = ClientLinks(spec.links, ["wifi"] * 998 + ["5g", "wifi"], seed=3)
    assert alone.capacities("down", 10)[998] == links.capacities("down", 10)[998]
    assert [r for r in range(25) if links.redraws_at(r)] == [0, 10, 20]


def test_the_network_meets_the_drawn_capacities_round_by_round():
    spec = NetworkSpec.model_validate(SCENARIO)
    names = ["5g", "wifi"]
    links = ClientLinks(spec.links, names, seed=0)
    network = FlowNetwork(simpy.Environment(), build_topology(spec.topology, spec.links, names))
    links.attach(network)
    assert network.capacity("internet", "client/0") == links.capacities("down", 0)[0]
    assert network.capacity("client/1", "internet") == 6e6
    links.round_begins(network, 7)
    assert network.capacity("internet", "client/0") == links.capacities("down", 0)[0]
    links.round_begins(network, 10)
    assert network.capacity("client/0", "internet") == links.capacities("up", 10)[0]


def test_draws_by_seconds_follow_the_clock():
    link = LinkSpec.model_validate({**SCENARIO["links"]["5g"], "redraw": "30 s"})
    spec = NetworkSpec.model_validate(SCENARIO)
    links = ClientLinks({"5g": link}, ["5g"], seed=0)
    env = simpy.Environment()
    network = FlowNetwork(env, build_topology(spec.topology, {"5g": link}, ["5g"]))
    links.attach(network)
    assert np.isnan(links.capacities("down", 0)[0])
    seen = []
    for moment in (1, 29, 31, 59, 61):
        env.run(until=moment)
        seen.append(network.capacity("internet", "client/0"))
    assert seen[0] == seen[1] != seen[2] == seen[3] != seen[4]
    first = ClientLinks({"5g": LinkSpec.model_validate(SCENARIO["links"]["5g"])}, ["5g"], seed=0)
    assert seen[0] == first.capacities("down", 0)[0]


def test_clients_enter_a_trace_at_points_of_their_own(tmp_path):
    (tmp_path / "t.csv").write_text("seconds,bits_per_second\n" + "".join(f"{k},{k}e6\n" for k in range(1, 101)))
    trace = {"kind": "trace", "file": "t.csv", "format": "csv", "scale": 2}
    links = {"a": LinkSpec.model_validate({"down": trace, "up": {**trace, "shift": "none"}})}
    topology = build_topology(NetworkSpec.model_validate(SCENARIO).topology, links, ["a"] * 50)
    network = FlowNetwork(simpy.Environment(), topology)
    ClientLinks(links, ["a"] * 50, seed=0, folder=tmp_path).attach(network)
    down = {network.capacity("internet", f"client/{c}") for c in range(50)}
    assert len(down) > 30
    assert down <= {2e6 * k for k in range(1, 101)}
    assert {network.capacity(f"client/{c}", "internet") for c in range(50)} == {2e6}
    with pytest.raises(UserError, match=r"network\.links\.a\.down"):
        ClientLinks(links, ["a"] * 50, seed=0).attach(network)


def test_a_graph_from_a_file_is_the_network(tmp_path):
    graph = nx.DiGraph()
    for client in ("phone", "board"):
        graph.add_edge("hub", client, capacity=1e6, latency=0.01)
        graph.add_edge(client, "hub", capacity=1e6, latency=0.01)
    graph.add_edge("hub", "cloud", capacity=8e6, latency=0.03)
    graph.add_edge("cloud", "hub", capacity=8e6, latency=0.03)
    nx.write_graphml(graph, tmp_path / "net.graphml")
    (tmp_path / "net.json").write_text(json.dumps(nx.node_link_data(graph, edges="links")))
    links = {"a": LinkSpec.model_validate({"down": 4e6, "up": 2e6})}
    for name in ("net.graphml", "net.json"):
        spec = {"kind": "file", "file": name, "server": "cloud", "clients": ["phone", "board"]}
        topology = NetworkSpec.model_validate({"topology": spec, "links": links}).topology
        env = simpy.Environment()
        network = FlowNetwork(env, build_topology(topology, links, ["a", "a"], folder=tmp_path))
        ClientLinks(links, ["a", "a"], seed=0).attach(network)
        flow = network.transfer("server", "client/1", 1e6)
        env.run()
        assert flow.ended == pytest.approx(0.04 + 2.0)
        with pytest.raises(UserError, match="expected 3 clients, found 2"):
            build_topology(topology, links, ["a"] * 3, folder=tmp_path)


@pytest.mark.parametrize(("name", "text"), [("a.json", "[]"), ("a.graphml", "<x>"), ("a.txt", "")])
def test_a_file_that_is_no_graph_is_refused(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    links = {"a": LinkSpec.model_validate({"down": 4e6, "up": 2e6})}
    topology = NetworkSpec.model_validate({"topology": {"kind": "file", "file": name}, "links": links}).topology
    with pytest.raises(UserError, match=name):
        build_topology(topology, links, ["a"], folder=tmp_path)


@pytest.mark.parametrize("like", ["4g_driving", "4g_walking"])
def test_generated_links_vary_as_much_as_measured_ones(like):
    # Mahimahi's one-second bins: coefficient of variation 0.46 to 0.88, lag-1 autocorrelation 0.41 to 0.91.
    link = LinkSpec.model_validate({"down": {"kind": "process", "like": like}, "up": 1e6})
    env = simpy.Environment()
    topology = build_topology(NetworkSpec.model_validate(SCENARIO).topology, {"a": link}, ["a"] * 20)
    network = FlowNetwork(env, topology)
    ClientLinks({"a": link}, ["a"] * 20, seed=0).attach(network)
    series = []
    for second in range(400):
        env.run(until=second + 0.5)
        series.append([network.capacity("internet", f"client/{c}") for c in range(20)])
    series = np.array(series)
    assert 0.46 < np.mean(series.std(axis=0) / series.mean(axis=0)) < 0.88
    assert 0.41 < np.mean([np.corrcoef(s[1:], s[:-1])[0, 1] for s in series.T]) < 0.91


def test_symmetric_draws_stand_at_the_same_point_both_ways():
    ranges = {
        "down": {"kind": "uniform", "low": 10e6, "high": 20e6},
        "up": {"kind": "uniform", "low": 1e6, "high": 3e6},
    }
    apart, alike = (
        ClientLinks({"a": LinkSpec.model_validate({**ranges, "symmetric": symmetric})}, ["a"] * 50, seed=1)
        for symmetric in (False, True)
    )
    down, up = alike.capacities("down", 0), alike.capacities("up", 0)
    np.testing.assert_allclose((down - 10e6) / 10e6, (up - 1e6) / 2e6, rtol=0, atol=1e-12)
    assert (apart.capacities("down", 0) == down).all()
    assert (apart.capacities("up", 0) != up).any()
    with pytest.raises(ValueError, match="not both drawn"):
        LinkSpec.model_validate({"down": "1 Mbit/s", "up": "1 Mbit/s", "symmetric": True})


UNIFORM = {"kind": "uniform", "low": 1e6, "high": 3e6}
PROCESS = {"kind": "process", "quantiles": {10: 1e6, 90: 9e6}}
FACTOR = 0.37


class Network:
    """Keeps the capacities that links are given, by the number of the link."""

    def __init__(self, topology):
        self.topology, self.constant, self.followed = topology, {}, {}

    def set_capacities(self, numbers, capacities):
        self.constant |= dict(zip(numbers.tolist(), capacities.tolist(), strict=True))

    def follow(self, number, process):
        self.followed[number] = process


class Topology:
    def client_links(self, clients, *, up):
        return 2 * np.arange(clients) + up


@pytest.fixture
def trace(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text("seconds,bits_per_second\n0,2000000\n1,8000000\n3,4000000\n")
    return {"kind": "trace", "file": str(file), "format": "csv"}


def links_of(**ways):
    return ClientLinks({"l": LinkSpec.model_validate(ways)}, ["l"] * 5, seed=3)


def given(links):
    network = Network(Topology())
    links.attach(network)
    times = np.linspace(0, 20, 41)
    followed = {number: [process.value(time) for time in times] for number, process in network.followed.items()}
    return network.constant, followed


@pytest.mark.parametrize("down", [5e6, UNIFORM, PROCESS, "trace"])
def test_every_capacity_is_multiplied(trace, down):
    links = links_of(down=trace if down == "trace" else down, up=UNIFORM)
    constant, followed = given(links)
    scaled_constant, scaled_followed = given(links.scaled(FACTOR))
    assert scaled_constant == pytest.approx({key: FACTOR * rate for key, rate in constant.items()}, nan_ok=True)
    assert scaled_followed.keys() == followed.keys()
    for number, rates in followed.items():
        assert scaled_followed[number] == pytest.approx([FACTOR * rate for rate in rates])
    assert given(links) == (constant, followed)


@pytest.mark.parametrize(
    ("down", "usual"), [(5e6, 5e6), (UNIFORM, 2e6), (PROCESS, 5e6), ("trace", (2e6 + 2 * 8e6 + 2 * 4e6) / 5)]
)
def test_the_usual_capacity_is_the_middle_of_what_a_client_has(trace, down, usual):
    links = links_of(down=trace if down == "trace" else down, up=1e6)
    assert links.usual("down").tolist() == pytest.approx([usual] * 5)
    assert links.scaled(FACTOR).usual("down").tolist() == pytest.approx([FACTOR * usual] * 5)


def relayed(sharing):
    """A client behind a relay that receives and sends on one channel."""
    graph = nx.DiGraph()
    graph.add_edge("server", "relay", capacity=20e6, latency=0.01, air="a")
    graph.add_edge("relay", "client/0", capacity=5e6, latency=0.03, air="a")
    return GraphLinks(graph, sharing=sharing)


NETWORKS = {
    "star": lambda: TreeLinks(server=(1e9, 1e9), down=[280e6], up=[280e6], latency=[0.02]),
    "cell": lambda: TreeLinks(
        server=(1e9, 1e9), down=[50e6], up=[9e6], backhaul=[(30e6, 30e6)], cell=[0], sharing="airtime_fair"
    ),
    "relay": lambda: relayed("rate_fair"),
    "relay with the time shared": lambda: relayed("airtime_fair"),
    "wired relay": lambda: relayed("wired"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_transfer_alone_takes_what_was_foreseen(name):
    env = simpy.Environment()
    network = FlowNetwork(env, NETWORKS[name]())
    foreseen = network.alone("server", "client/0").seconds(4e6)
    flow = network.transfer("server", "client/0", 4e6)
    env.run()
    assert flow.ended == pytest.approx(foreseen, rel=1e-12)


def test_nothing_is_foreseen_over_a_link_that_is_down():
    network = FlowNetwork(simpy.Environment(), relayed("rate_fair"))
    network.set_capacity("relay", "client/0", 0.0)
    assert network.alone("server", "client/0").seconds(1.0) == math.inf
