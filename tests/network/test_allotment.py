"""Transfers whose rates a server allots: hand-solved cases, and the best makespan from a linear program."""

import random

import networkx as nx
import numpy as np
import pytest
import simpy
from scipy.optimize import linprog

from edgefl.network import FlowNetwork
from edgefl.network.fairness import Claim, Outlook, Shares, allotted
from edgefl.network.tree import TreeLinks
from edgefl.scheduling.bandwidth.base import bandwidth
from edgefl.simulation.traffic import Allocation

from .audit import Claim as Demand
from .audit import Log, fill_by_rank

EXACT = {"rel": 1e-9, "abs": 1e-9}


def allocator(kind):
    return None if kind == "equal" else Allocation(bandwidth(kind), "method")


def uploads(kind, *, server, own, bytes, starts, changes=(), topology=None, transport=None):
    """When uploads end that begin at these times; checked by the audit."""
    env = simpy.Environment()
    links = topology or TreeLinks(server=(server, server), down=own, up=own)
    log = Log(env)
    network = FlowNetwork(env, links, observer=log, transport=transport, allocator=allocator(kind))
    flows = {}

    def upload(client):
        yield env.timeout(starts[client])
        flows[client] = network.transfer(f"client/{client}", "server", bytes[client], outlook=Outlook(up=True))

    def change():
        for seconds, source, target, rate in changes:
            yield env.timeout(seconds - env.now)
            network.set_capacity(source, target, rate)

    for client in range(len(bytes)):
        env.process(upload(client))
    env.process(change())
    env.run()
    ended = [flows[client].ended for client in range(len(bytes))]

    def audit(kind):
        return log.audit(network.topology, transport=transport, allocator=allocator(kind))

    assert audit(kind) == []
    return ended, audit


def test_shares_in_proportion_to_bytes_end_together():
    ended, _ = uploads("proportional", server=8.0, own=[99.0] * 3, bytes=[1, 3, 4], starts=[0, 0, 0])
    assert ended == pytest.approx([8.0] * 3, **EXACT)


def test_a_proportional_share_above_the_own_link_goes_to_the_others():
    # 12 bit/s by 1:3 would be 3 and 9; the second can have 5. The first ends after 8 / 7 s.
    ended, _ = uploads("proportional", server=12.0, own=[99.0, 5.0], bytes=[1, 3], starts=[0, 0])
    assert ended == pytest.approx([8 / 7, 24 / 5], **EXACT)


def test_the_shortest_rest_first():
    # At 0.5 s, 20 bits of the first are left, more than the second's 8: it waits for 1 s.
    ended, audit = uploads("shortest_first", server=8.0, own=[99.0, 99.0, 2.0], bytes=[3, 1, 4], starts=[0, 0.5, 20])
    assert ended == pytest.approx([4.0, 1.5, 36.0], **EXACT)
    assert audit("equal"), "equal shares would have given other rates"
    # The second begins with as many bits as the first has left, and waits.
    ended, _ = uploads("shortest_first", server=8.0, own=[99.0] * 2, bytes=[2, 1], starts=[0, 1])
    assert ended == pytest.approx([2.0, 3.0], **EXACT)


def test_what_the_first_cannot_use_is_for_the_next():
    ended, _ = uploads("shortest_first", server=10.0, own=[4.0, 99.0, 99.0], bytes=[1, 3, 9], starts=[0] * 3)
    # 4 and 6 bit/s until 2 s, when 12 bits of the second are left; then 10 for it, then 10 for the third.
    assert ended == pytest.approx([2.0, 3.2, 3.2 + 7.2], **EXACT)


def test_the_least_makespan_with_a_late_start():
    # At 1 s the first has 16 bits left, which take 2 s alone; the second takes 8 s alone and comes first at 1 bit/s.
    ended, _ = uploads("least_makespan", server=8.0, own=[8.0, 1.0], bytes=[3, 1], starts=[0, 1])
    assert ended == pytest.approx([1 + 16 / 7, 9.0], **EXACT)
    # Levels 4 and 2 of own rates 8 and 8: the first alone until 2 s, then both at 4 bit/s.
    ended, _ = uploads("least_makespan", server=8.0, own=[8.0, 8.0], bytes=[4, 2], starts=[0, 0])
    assert ended == pytest.approx([6.0, 6.0], **EXACT)
    # 12 bit/s for own rates 8 and 6: levels 4 and 2 fall at 1 and 2/3, and meet only when both are 0.
    ended, _ = uploads("least_makespan", server=12.0, own=[8.0, 6.0], bytes=[4, 1.5], starts=[0, 0])
    assert ended == pytest.approx([4.0, 3.0], **EXACT)


def test_levels_that_meet_continue_together():
    # 8 bit/s; levels 3 (24 bits at 8) and 2 (8 bits at 4). The first alone until 1 s, then in proportion 2:1.
    ended, _ = uploads("least_makespan", server=8.0, own=[8.0, 4.0], bytes=[3, 1], starts=[0, 0])
    assert ended == pytest.approx([4.0, 4.0], **EXACT)


def test_a_deadline_decides_who_comes_first():
    env = simpy.Environment()
    network = FlowNetwork(
        env,
        TreeLinks(server=(8.0, 8.0), down=[99.0] * 3, up=[99.0] * 3),
        allocator=Allocation(bandwidth("deadline_first"), "method"),
    )
    after = [1.0, 5.0, 9.5]  # due at 9, 5 and 0.5; the last needs 1 s and is late even alone
    flows = [
        network.transfer("server", f"client/{client}", 1, outlook=Outlook(after=seconds, deadline=10.0))
        for client, seconds in enumerate(after)
    ]
    env.run()
    assert [flow.ended for flow in flows] == pytest.approx([2.0, 1.0, 3.0], **EXACT)


def test_a_channel_allots_its_time():
    # 6 Mbit/s and 3 Mbit/s in one cell: each update takes the channel 4 s and 8 s, whoever is first.
    for sharing in ("airtime_fair", "rate_fair"):
        cell = TreeLinks(
            server=(1e9, 1e9), down=[6e6, 3e6], up=[6e6, 3e6], backhaul=[(1e9, 1e9)], cell=[0, 0], sharing=sharing
        )
        for kind, expected in {"shortest_first": [4.0, 12.0], "proportional": [12.0, 12.0]}.items():
            bytes = [3e6, 3e6 + 1]
            ended, _ = uploads(kind, server=0, own=[], bytes=bytes, starts=[0, 0], topology=cell)
            assert ended == pytest.approx(expected, rel=1e-5)


def test_capacity_changes_and_outages_are_followed():
    changes = [(1.0, "internet", "server", 0.0), (3.0, "internet", "server", 16.0)]
    ended, _ = uploads("shortest_first", server=8.0, own=[99.0] * 2, bytes=[1, 3], starts=[0.5, 0], changes=changes)
    # 4 bits of each are sent by 1 s: the second had 20 left at 0.5 s; the link is back at 3 s.
    assert ended == pytest.approx([3.25, 4.5], **EXACT)


def test_two_separate_links_are_allotted_apart():
    graph = nx.DiGraph()
    for side in ("a", "b"):
        graph.add_edge(side, "server", capacity=8.0)
        for client in range(2):
            graph.add_edge(f"client/{client + 2 * (side == 'b')}", side, capacity=99.0)
    ended, _ = uploads("shortest_first", server=0, own=[], bytes=[1, 2, 2, 1], starts=[0] * 4, topology=graph)
    assert ended == pytest.approx([1.0, 3.0, 3.0, 1.0], **EXACT)


def test_ranks_filled_by_the_network_equal_those_of_the_audit():
    draws = random.Random(5)
    for _ in range(100):
        links = {link: draws.choice([0.0, draws.uniform(1, 30)]) for link in range(3)}
        count = draws.randint(1, 9)
        paths = [tuple(sorted(draws.sample(range(3), draws.randint(1, 3)))) for _ in range(count)]
        most = [draws.choice([1e9, draws.uniform(1, 9)]) for _ in range(count)]
        shares = Shares([draws.randint(0, 3) for _ in range(count)], [draws.uniform(0.1, 5) for _ in range(count)])
        found = allotted([Claim(cap, path, {}) for cap, path in zip(most, paths, strict=True)], shares, links)
        demands = [
            Demand(flow, shares.weight[flow], [(("own", flow), most[flow], 1.0)]
                   + [(link, links[link], 1.0) for link in paths[flow]])
            for flow in range(count)
        ]  # fmt: skip
        expected = fill_by_rank(demands, shares.rank)
        assert found == pytest.approx([expected[flow] for flow in range(count)], rel=1e-9, abs=1e-9)


def drawn_round(draws):
    count = draws.randint(2, 8)
    return {
        "server": draws.uniform(5, 30),
        "own": [draws.uniform(1, 15) for _ in range(count)],
        "bytes": [draws.uniform(1, 10) for _ in range(count)],
        "starts": [draws.choice([0.0, draws.uniform(0, 6)]) for _ in range(count)],
    }


def best_makespan(server, own, bytes, starts):
    """The least makespan by a linear program over the intervals between starts; the last interval has a free length."""
    moments, count = sorted(set(starts)), len(own)
    intervals = len(moments)
    lengths = [*np.diff(moments), None]
    cost = np.zeros(count * intervals + 1)
    cost[-1] = 1.0
    rows, bounds = [], []
    for interval, length in enumerate(lengths):
        for flows, rate in [(range(count), server), *(([flow], own[flow]) for flow in range(count))]:
            row = np.zeros(len(cost))
            row[[flow * intervals + interval for flow in flows]] = 1.0
            begun = len(flows) > 1 or starts[flows[0]] <= moments[interval]
            row[-1] = 0.0 if length is not None else -rate
            rows.append(row)
            bounds.append(0.0 if length is None or not begun else rate * length)
    sums = np.zeros((count, len(cost)))
    for flow in range(count):
        sums[flow, flow * intervals : (flow + 1) * intervals] = 1.0
    bits = [8.0 * size for size in bytes]
    solved = linprog(cost, A_ub=np.array(rows), b_ub=bounds, A_eq=sums, b_eq=bits, method="highs")
    return moments[-1] + solved.fun


def test_the_makespan_is_that_of_a_linear_program_that_knows_all_later_uploads():
    draws = random.Random(1)
    for _ in range(40):
        case = drawn_round(draws)
        ended, _ = uploads("least_makespan", **case)
        assert max(ended) == pytest.approx(best_makespan(**case), **EXACT)
