"""The rules for rates and windows, by hand, and the commands that they give."""

from __future__ import annotations

import math

import pytest

from edgefl.emulation import shaping
from edgefl.emulation.traffic_control import Rate
from edgefl.emulation.wiring import WiredLink

ADDRESSES = {"server": "10.0.0.1", "client/0": "10.0.0.2", "client/1": "10.0.0.3"}
PAIRS = (("server", "client/0"), ("server", "client/1"))


def shaper(**options):
    link = WiredLink(0, "server", "internet", 8e6, 8e6, 0.0, PAIRS)
    return shaping.Shaper(link, "to3", ADDRESSES, **options)


def test_payload_gets_the_scenarios_capacity():
    rate = shaping.wire_bytes_per_second(16e6, efficiency=0.5, dilation=4.0)
    # 1 MB/s of payload in the scenario, a quarter of it in real time; 1448 of each frame's 1514 bytes are payload.
    assert rate == pytest.approx(0.25e6 / 1448 * 1514, rel=1e-12)


def test_an_infinite_capacity_is_not_shaped():
    assert shaping.wire_bytes_per_second(math.inf, efficiency=1.0, dilation=5.0) == shaping.UNSHAPED


def test_a_window_covers_the_round_trip_and_the_slack():
    # 10 Mbit/s: 1.25 MB/s for 40 ms and the slack.
    assert shaping.window_packets(1.25e6, 0.04) == math.ceil(1.25e6 * (0.04 + shaping.DELAYED_SLACK_SECONDS) / 1448)
    assert shaping.window_packets(1.25e8, 0.0) == math.ceil(1.25e8 * shaping.SLACK_SECONDS / 1448)


def test_packets_that_are_sent_as_one_are_at_most_a_quarter_of_what_a_window_may_wait():
    assert shaping.segments(1448 * 4 * 3.5 / shaping.SLACK_SECONDS, 0.0) == 3
    assert shaping.segments(1448 * 4 * 3.5 / shaping.DELAYED_SLACK_SECONDS, 0.01) == 3
    assert (shaping.segments(1e3, 0.0), shaping.segments(1e12, 0.0)) == (1, shaping.MOST_SEGMENTS)


def test_each_sender_and_receiver_has_a_class_that_borrows_the_links_rate():
    lines = shaper().made(1e6)
    leaves = [line for line in lines if line.startswith("class add dev to3 parent 2:1 ")]
    filters = [line for line in lines if " prio 2 " in line]
    assert len(leaves) == len(filters) == 2
    assert "match ip src 10.0.0.1/32 match ip dst 10.0.0.3/32 classid 2:11" in filters[1]
    assert any("classid 2:1 htb rate 1000000bps ceil 1000000bps" in line for line in lines)


def test_one_fifo_has_one_class_for_all():
    lines = shaper(fair=False, packets=100).made(1e6)
    assert sum("parent 2:1 " in line for line in lines) == 1
    assert any(line.endswith("pfifo limit 100") for line in lines)
    assert not any("10.0.0.2" in line for line in lines)


def test_a_change_sets_the_rate_of_the_links_class():
    assert shaper().changed(2.5e6) == Rate("to3", 0x20001, 2_500_000, 5000, 1514)


def test_an_outage_closes_every_queue_and_its_end_opens_them():
    closed, opened = shaper().valves(open=False), shaper().valves(open=True)
    assert [(each.parent, each.handle, each.bytes_per_second) for each in closed] == [
        (0x20010, 0x100000, 1),
        (0x20011, 0x110000, 1),
    ]
    assert all(each.bytes_per_second > shaping.UNSHAPED and each.packets == shaping.QUEUE_PACKETS for each in opened)
