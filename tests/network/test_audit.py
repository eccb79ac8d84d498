"""The audit agrees with the network on random runs, and finds an end that is a thousandth early or late."""

import random

import networkx as nx
import pytest
import simpy

from edgefl.network import FlowNetwork, StepTrace, TreeLinks

from .audit import Claim, Log, audit_flows, fill, record_of


def random_run(seed, flows=60, until=None):
    """Cells, both directions, traces, outages, redraws, cancellations, weights, latencies."""
    luck = random.Random(seed)
    env = simpy.Environment()
    graph = nx.DiGraph()
    pairs = [("server", "internet", 20e6)]
    pairs += [("internet", f"cell/{c}", luck.uniform(4e6, 12e6)) for c in range(3)]
    pairs += [(f"cell/{c % 3}", f"client/{c}", luck.uniform(0.5e6, 8e6)) for c in range(12)]
    for near, far, capacity in pairs:
        graph.add_edge(near, far, capacity=capacity, latency=luck.choice([0, 0.01]))
        graph.add_edge(far, near, capacity=capacity * 0.7, latency=0.005)
    log = Log(env)
    network = FlowNetwork(env, graph, observer=log)
    network.set_process("cell/0", "client/0", StepTrace([0, 0.3, 0.7], [3e6, 0, 5e6], period=1.1))
    network.set_process("internet", "cell/1", StepTrace([0, 1, 2], [9e6, 2e6, 5e6], period=3))

    def act():
        for _ in range(flows):
            yield env.timeout(luck.choice([0, 0, luck.expovariate(6)]))
            kind = luck.random()
            ends = ("server", f"client/{luck.randrange(12)}")
            if kind < 0.1 and network.flows:
                network.cancel(luck.choice(network.flows))
            if kind > 0.85:
                near, far, capacity = luck.choice(pairs)
                network.set_capacity(near, far, capacity * luck.choice([0, 0.5, 1, 2]))
                env.timeout(1).callbacks.append(lambda _, e=(near, far), c=capacity: network.set_capacity(*e, c))
            weight = luck.choice([1, 1, 1, 2.5])
            network.transfer(*luck.choice([ends, ends[::-1]]), luck.choice([0, 1e4, 3e5, 1e6]), weight=weight)

    env.process(act())
    env.run(until=until)
    return log.capacities, [record_of(flow, network.topology) for flow in log.flows]


@pytest.mark.parametrize("seed", range(4))
def test_the_audit_finds_nothing_in_the_networks_own_runs(seed):
    capacities, records = random_run(seed, until=None if seed % 2 else 4.0)
    assert audit_flows(capacities, records) == []


def test_the_audit_finds_an_end_moved_by_a_thousandth():
    capacities, records = random_run(0)
    victims = [record for record in records if not record.cancelled and record.bytes >= 3e5]
    for victim, factor in zip(victims[:4], [0.999, 1.001] * 2, strict=True):
        ended = victim.started + factor * (victim.ended - victim.started)
        edited = [r._replace(ended=ended) if r is victim else r for r in records]
        assert any(flow == victim.flow for _, flow, _ in audit_flows(capacities, edited))


def test_progressive_filling_gives_the_textbook_rates():
    # Bertsekas and Gallager's shape: three links in a row, one flow over all of them, one more on each.
    links = {"a": 1.0, "b": 2.0, "c": 4.0}
    paths = ["abc", "a", "b", "c"]
    claims = [Claim(n, 1.0, [(link, links[link], 1.0) for link in path]) for n, path in enumerate(paths)]
    assert fill(claims) == {0: 0.5, 1: 0.5, 2: 1.5, 3: 3.5}


@pytest.mark.parametrize("sharing", ["rate_fair", "airtime_fair"])
def test_the_audit_knows_the_air_of_cells(sharing):
    luck = random.Random(5)
    env = simpy.Environment()
    log = Log(env)
    rates = [luck.choice([6e6, 24e6, 54e6]) for _ in range(12)]
    tree = TreeLinks(
        server=(6e7, 6e7),
        down=rates,
        up=rates,
        latency=0.01,
        backhaul=[(4e7, 2e7)] * 3,
        cell=[c % 3 for c in range(12)],
        sharing=sharing,
    )
    network = FlowNetwork(env, tree, observer=log)

    def act():
        for number in range(80):
            yield env.timeout(luck.expovariate(10))
            client = f"client/{luck.randrange(12)}"
            network.transfer(
                *(("server", client) if luck.random() < 0.6 else (client, "server")), luck.uniform(1e5, 1e6)
            )
            if number % 10 == 9:
                network.set_capacity(f"cell/{number % 3}", f"client/{number % 12}", luck.choice([0, 6e6, 54e6]))
        for client, rate in enumerate(rates):
            network.set_capacity(f"cell/{client % 3}", f"client/{client}", rate)

    env.run(until=env.process(act()))
    env.run()
    assert log.audit(tree) == []
    assert log.audit(tree, air={})
    assert log.audit(tree, airtime_fair=sharing != "airtime_fair")
