"""The fluid's times against TCP Reno, packet by packet (reno.py), and real TCP between network namespaces."""

import json
import math
from pathlib import Path
from statistics import fmean, median, quantiles

import pytest
import simpy

from edgefl.network import FifoQueue, FlowNetwork, Transport, TreeLinks
from edgefl.network.tcp import Opening, Tcp
from edgefl.network.transport import SPREAD

from .reno import reno_seconds

SEGMENT = 1460


def fluid_seconds(packets, *, round_trip, packets_per_second=1e9):
    tcp = Tcp(segment=SEGMENT, initial_window=10)
    rate = packets_per_second * SEGMENT * 8
    return round_trip / 2 + tcp.seconds(packets * SEGMENT, rate, round_trip / 2, Opening(0))


@pytest.mark.parametrize("rate", [100, 1000, 10_000])
@pytest.mark.parametrize("round_trip", [0.02, 0.1, 0.3])
def test_the_goodput_of_slow_start_and_link_is_that_of_reno(round_trip, rate):
    for packets in (200, 500, 2000):
        reno = reno_seconds(packets, round_trip=round_trip, packets_per_second=rate)
        fluid = fluid_seconds(packets, round_trip=round_trip, packets_per_second=rate)
        assert fluid == pytest.approx(reno, rel=0.1)


@pytest.mark.parametrize("packets", [1, 5, 10, 11, 30, 70])
def test_a_transfer_of_a_few_round_trips_differs_by_at_most_one(packets):
    reno = reno_seconds(packets, round_trip=0.1, packets_per_second=10_000)
    assert abs(fluid_seconds(packets, round_trip=0.1, packets_per_second=10_000) - reno) <= 0.1


# --- measured ---------------------------------------------------------------------------------------------------------

PHASES = json.loads((Path(__file__).parent / "measured_phases.json").read_text())
"""Six TCP transfers at a time through a shared link of 40 Mbit/s, by its queue: a queue of 100 packets for each client
(CUBIC), or one first-in, first-out queue of 100 packets for all (Reno). With the rates of the clients' links (Mbit/s),
and the bytes and seconds of each transfer."""


def phase_seconds(phase, queue=None):
    env = simpy.Environment()
    rates = [1e6 * rate for rate in phase["rates"]]
    network = FlowNetwork(
        env,
        TreeLinks(server=(4e7, 4e7), down=rates, up=rates),
        transport=Transport(efficiency=1448 / 1514, queue=queue),
    )
    flows = [network.transfer("server", f"client/{client}", size) for client, size in enumerate(phase["bytes"])]
    env.run()
    return [flow.ended for flow in flows]


def deviations(kind, seconds_of):
    """How much longer each transfer, and each phase, takes than max-min sharing gives."""
    single, last = [], []
    for number, phase in enumerate(PHASES[kind]):
        fair = phase_seconds(phase)
        for seconds in seconds_of(number, phase):
            single += [own / ideal - 1 for own, ideal in zip(seconds, fair, strict=True)]
            last.append(max(seconds) / max(fair) - 1)
    return single, last


def test_with_a_queue_for_each_client_real_tcp_shares_max_min_fairly():
    single, last = deviations("fair", lambda _, phase: [phase["seconds"]])
    assert max(map(abs, last)) < 0.005
    assert median(map(abs, single)) < 0.005
    assert max(map(abs, single)) < 0.1


def drawn_deviations(spread):
    return deviations(
        "fifo",
        lambda number, phase: [phase_seconds(phase, FifoQueue(100 * seed + number, spread)) for seed in range(8)],
    )


def test_single_transfers_through_one_queue_differ_as_they_were_measured_with_a_spread_of_a_quarter():
    measured, _ = deviations("fifo", lambda _, phase: [phase["seconds"]])
    drawn, _ = drawn_deviations(0.25)
    for one, other in zip(quantiles(measured, n=20), quantiles(drawn, n=20), strict=True):
        assert abs(one - other) < 0.04
    assert fmean(map(abs, drawn)) == pytest.approx(fmean(map(abs, measured)), rel=0.15)


def test_last_ends_through_one_queue_are_as_late_as_they_were_measured_with_the_usual_spread():
    _, measured = deviations("fifo", lambda _, phase: [phase["seconds"]])
    _, drawn = drawn_deviations(SPREAD)
    assert fmean(drawn) == pytest.approx(fmean(measured), abs=0.003)
    assert max(measured) < max(drawn) < 3 * max(measured)
    assert not math.isclose(fmean(drawn), 0.0)
