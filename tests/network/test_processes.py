"""Capacities over time: steps, loops, files, and what a flow over them takes."""

import networkx as nx
import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.errors import UserError, WrongAnswer
from edgefl.network import FlowNetwork
from edgefl.network.capacities.base import LinkDirection
from edgefl.network.capacities.process import GeneratedCapacity, GeneratedRates
from edgefl.network.traces import read_mahimahi, read_traces
from edgefl.step_trace import StepTrace


def send_over(process, sizes, gap=0.0):
    """Ends of flows sent one after another over a link that follows the process."""
    env = simpy.Environment()
    graph = nx.DiGraph()
    graph.add_edge("a", "b", capacity=1.0)
    network = FlowNetwork(env, graph)
    network.set_process("a", "b", process)
    ends = []

    def sender():
        for size in sizes:
            flow = yield network.transfer("a", "b", size)
            ends.append(flow.ended)
            yield env.timeout(gap)

    env.run(until=env.process(sender()))
    return ends


def test_a_looped_trace_with_an_outage_repeats_for_ever():
    trace = StepTrace([0, 1, 2], [8e6, 0, 16e6], period=4)
    # One period passes 1 + 0 + 4 MB; 12 MB are two periods and 2 MB more.
    assert send_over(trace, [12e6]) == [pytest.approx(8 + 2.5, rel=1e-12)]
    assert trace.mean() == pytest.approx(10e6)


def test_a_trace_that_ends_keeps_its_last_rate():
    assert send_over(StepTrace([0, 1], [8e6, 16e6]), [5e6]) == [pytest.approx(3.0)]


def test_changes_on_an_idle_link_count_when_it_is_next_used():
    trace = StepTrace([0, 1, 2, 3], [8e6, 1e6, 2e6, 16e6], period=100)
    assert send_over(trace, [0.5e6, 2e6], gap=5.0) == pytest.approx([0.5, 5.5 + 1.0])


def test_a_capacity_is_new_from_its_change_on_even_if_the_clock_is_a_rounding_error_earlier():
    begins, changes = 0.72, 3.579
    assert begins + (changes - begins) < changes
    reported = []

    class Reader:
        def capacity_changed(self, link, source, target, bits_per_second):
            reported.append((bits_per_second, network.capacity(source, target)))

        def flow_started(self, flow): ...

        def flow_ended(self, flow): ...

    env = simpy.Environment(initial_time=begins)
    graph = nx.DiGraph()
    graph.add_edge("a", "b", capacity=1.0)
    network = FlowNetwork(env, graph, observer=Reader())
    network.set_process("a", "b", StepTrace([0, changes], [8e6, 16e6]))
    network.transfer("a", "b", 1e7)
    env.run()
    assert reported == [(8e6, 8e6), (16e6, 16e6)]


@given(
    lengths=st.lists(st.floats(0.01, 3.0), min_size=1, max_size=6),
    rates=st.lists(st.floats(0.0, 1e7), min_size=6, max_size=6),
    offset=st.floats(0, 50),
    megabytes=st.floats(0.01, 5.0),
)
@settings(max_examples=30, deadline=None)
def test_splitting_the_steps_of_a_trace_changes_no_end(lengths, rates, offset, megabytes):
    times = np.concatenate([[0.0], np.cumsum(lengths)])
    rates = [*rates[: len(lengths)]]
    rates[0] += 1e6
    whole = StepTrace(times[:-1].tolist(), rates, period=float(times[-1])).shifted(offset)

    class Split:
        """The same function, said to change at every 0.07 s as well."""

        def value(self, seconds):
            return whole.value(seconds)

        def next_change(self, seconds):
            step = int(seconds / 0.07) + 1
            moment = step * 0.07 if step * 0.07 > seconds else (step + 1) * 0.07
            return min(moment, whole.next_change(seconds))

    assert send_over(Split(), [megabytes * 1e6]) == pytest.approx(send_over(whole, [megabytes * 1e6]), rel=1e-9)


def cumulative_inverse(stamps: np.ndarray, bits: float) -> float:
    """Seconds until a looped Mahimahi trace has passed so many bits; counts joined by straight lines."""
    period = stamps[-1]
    counts = np.bincount(stamps, minlength=period + 1)
    counts[-1] += counts[0]
    counts[0] = 0
    passed = np.cumsum(counts) * 12000.0
    loops, rest = divmod(bits, passed[-1])
    at = int(np.searchsorted(passed, rest))
    fraction = (rest - passed[at - 1]) / (passed[at] - passed[at - 1]) if at else 0.0
    return (loops * period + (at - 1 + fraction if at else 0.0)) / 1000.0


def test_a_mahimahi_trace_loops_after_its_last_line(tmp_path):
    file = tmp_path / "trace"
    file.write_text("0\n2\n2\n5\n")
    stamps = np.array([0, 2, 2, 5])
    for packets in (0.5, 3.75, 4.0, 9.5, 1001.0):
        end = send_over(read_mahimahi(file), [packets * 1500])
        assert end == [pytest.approx(cumulative_inverse(stamps, packets * 12000), rel=1e-9)]
    coarse = read_mahimahi(file, every=0.002)
    assert coarse.mean() == pytest.approx(read_mahimahi(file).mean())
    assert coarse.value(0.001) == pytest.approx(12e6)


def test_a_csv_trace_is_read_as_steps_and_looped(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text("bits_per_second,seconds,place\n8e6,10,a\n4e6,11,b\n")
    assert send_over(read_traces(file, "csv")[""], [2.5e6]) == [pytest.approx(1 + 1 + 1 + 0.0, rel=1e-12)]


@pytest.mark.parametrize("text", ["1.5\n", "1\n1_000\n", "100000000000\n"])
def test_a_wrong_mahimahi_trace_is_refused_with_its_name(tmp_path, text):
    file = tmp_path / "wrong"
    file.write_text(text)
    with pytest.raises(UserError) as error:
        read_mahimahi(file)
    assert str(error.value).startswith(f"{file}: ")


def generated(seed, clients, quantiles, correlation, outages=None):
    spec = GeneratedCapacity(quantiles=quantiles, correlation=correlation, outage_every=outages, outage_length=5)
    return GeneratedRates(spec, LinkDirection("x", "down", clients, seed, None, False, spec))


def test_generated_rates_have_the_quantiles_correlation_and_outages_asked_for():
    quantiles = {10: 12e6, 50: 98e6, 90: 550e6}
    rates = generated(3, 400, quantiles, 0.8, outages=50)
    series = np.array([rates.at_step(k).copy() for k in range(400)])
    off = series == 0
    assert off.mean() == pytest.approx(5 / 55, abs=0.01)
    starts = (off[1:] & ~off[:-1]).sum()
    assert off.sum() / starts == pytest.approx(5.0, rel=0.1)
    assert np.quantile(series[~off], [0.5, 0.8]) == pytest.approx([98e6, 98e6 + 0.75 * 452e6], rel=0.05)
    clean = generated(3, 400, {0: 0.0, 100: 1e6}, 0.8)
    ranks = np.array([clean.at_step(k).copy() for k in range(300)])
    lag_1 = np.corrcoef(ranks[1:].ravel(), ranks[:-1].ravel())[0, 1]
    # Pearson's correlation of ranks of a bivariate normal: 6 / pi * asin(rho / 2).
    assert lag_1 == pytest.approx(6 / np.pi * np.arcsin(0.4), abs=0.01)


@pytest.mark.parametrize("idle", [4e4, 1e12])
def test_a_link_that_lay_idle_for_ages_is_not_followed_through_them_and_time_goes_on(idle):
    def make():
        return generated(7, 3, {0: 1e6, 100: 2e6}, 0.9, outages=20)

    late, other = make(), make().process(1)
    process = late.process(1)
    other.value(0.5)
    assert other.value(idle) == process.value(idle)
    moments = [idle]
    for _ in range(20):
        moments.append(process.next_change(moments[-1]))
        assert moments[-1] > moments[-2]
    there = [process.value(moment) for moment in moments]
    assert len(set(there)) > 5
    assert [other.value(moment) for moment in moments] == there
    assert process.value(idle) == there[0]


def test_a_series_that_begins_again_keeps_its_quantiles(monkeypatch):
    monkeypatch.setattr("edgefl.network.capacities.process._EPOCH", 7)
    rates = generated(3, 400, {0: 0.0, 100: 1e6}, 0.8, outages=50)
    series = np.array([rates.at_step(k).copy() for k in range(400)])
    assert (series == 0).mean() == pytest.approx(5 / 55, abs=0.01)
    assert np.quantile(series[series > 0], [0.25, 0.5, 0.9]) == pytest.approx([0.25e6, 0.5e6, 0.9e6], abs=0.02e6)


def test_a_process_that_does_not_move_on_is_a_wrong_answer():
    """Else the clock would stand still."""

    class Stuck:
        def value(self, seconds):
            return 1e6

        def next_change(self, seconds):
            return seconds

    env = simpy.Environment()
    graph = nx.DiGraph()
    graph.add_edge("a", "b", capacity=1e6, latency=0.0)
    network = FlowNetwork(env, graph)
    network.follow(0, Stuck())
    network.transfer("a", "b", 1e6)
    with pytest.raises(WrongAnswer, match=r"next_change\(.*\) returned .*; expected a later time"):
        env.run()
