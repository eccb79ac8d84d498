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


def fluid_seconds(packets, *, round_trip, packets_per_second=1e9, loss=0.0, every=1):
    tcp = Tcp(segment=SEGMENT, initial_window=10, loss=loss, acknowledge_every=every)
    rate = packets_per_second * SEGMENT * 8
    return round_trip / 2 + tcp.seconds(packets * SEGMENT, rate, round_trip / 2, Opening(0))


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("rate", [100, 1000, 10_000])
@pytest.mark.parametrize("round_trip", [0.02, 0.1, 0.3])
def test_without_losses_the_goodput_of_slow_start_and_link_is_that_of_reno(round_trip, rate, every):
    for packets in (200, 500, 2000):
        reno = reno_seconds(packets, round_trip=round_trip, packets_per_second=rate, every=every)
        fluid = fluid_seconds(packets, round_trip=round_trip, packets_per_second=rate, every=every)
        assert fluid == pytest.approx(reno, rel=0.1)


@pytest.mark.parametrize("packets", [1, 5, 10, 11, 30, 70])
def test_a_transfer_of_a_few_round_trips_differs_by_at_most_one(packets):
    reno = reno_seconds(packets, round_trip=0.1, packets_per_second=10_000)
    assert abs(fluid_seconds(packets, round_trip=0.1, packets_per_second=10_000) - reno) <= 0.1


@pytest.mark.parametrize(
    ("loss", "every", "packets"),
    [
        *((1e-3, 1, 300), (3e-3, 2, 667), (0.01, 1, 700)),
        *(
            pytest.param(*each, marks=pytest.mark.full)
            for each in [(1e-4, 1, 3000), (0.01, 1, 200), (1e-3, 1, 10_000), (3e-3, 2, 10_000), (0.01, 1, 3000)]
        ),
    ],
)
def test_the_mean_goodput_of_a_transfer_with_losses_is_that_of_reno(loss, every, packets):
    seeds = range(max(50, min(300, 200_000 // packets)))
    reno = fmean(reno_seconds(packets, round_trip=0.1, loss=loss, every=every, seed=seed) for seed in seeds)
    assert fluid_seconds(packets, round_trip=0.1, loss=loss, every=every) == pytest.approx(reno, rel=0.1)


@pytest.mark.full
@pytest.mark.parametrize(("loss", "rate", "packets"), [(1e-3, 1000, 3000), (0.01, 200, 300), (0.01, 200, 1000)])
def test_a_path_of_about_the_mean_window_makes_a_lossy_transfer_too_fast_by_at_most_a_half(loss, rate, packets):
    times = [
        reno_seconds(packets, round_trip=0.1, loss=loss, packets_per_second=rate, seed=seed) for seed in range(100)
    ]
    fluid = fluid_seconds(packets, round_trip=0.1, loss=loss, packets_per_second=rate)
    assert 1.0 < fmean(times) / fluid < 1.5


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
