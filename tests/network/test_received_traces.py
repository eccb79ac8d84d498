"""Capacity traces from elsewhere are read or refused; none hangs a run, exhausts the memory or ends in a fault."""

from __future__ import annotations

import copy
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.cli.entry import main
from edgefl.errors import UserError
from edgefl.network.traces import RATES, read_traces
from edgefl.scenario.loading import check
from edgefl.scenario.rehearsal import rehearse

from ..small_runs import SMALL

HEAD = "seconds,bits_per_second\n"
MAHIMAHI = {
    "a last line of 10^12": "1\n1000000000000\n",
    "a last line of 10^23": f"1\n1{'0' * 23}\n",
    "a line of 5,000 digits": "1\n" + "9" * 5000 + "\n",
    "a line that int() reads": "1\n1_000\n",
    "digits of another script": "1\n\u0661\u0662\n",
    "a fraction": "1.5\n",
    "NUL": "1\n\0\n",
    "one packet in years": "100000000000\n",
}
CSV = {
    "a field of 200 kB": HEAD + "0,1\n1," + "1" * 200_000 + "\n",
    "a tiny period": HEAD + "0,1e6\n1e-300,2e6\n",
    "a tiny rate": HEAD + "0,1e-300\n1,2e6\n",
    "a huge rate": HEAD + "0,1e300\n1,2e6\n",
    "NaN in times": HEAD + "0,1e6\nnan,2e6\n",
    "NaN in rates": HEAD + "0,nan\n1,2e6\n",
    "an infinite time": HEAD + "0,1e6\ninf,2e6\n",
    "a time beyond all": HEAD + "-1e308,1e6\n1e308,2e6\n",
    "negative rates": HEAD + "0,-1\n1,2e6\n",
    "an open quote": HEAD + '0,"1\n1,2\n',
    "NUL": HEAD + "0,\0\n1,2e6\n",
}


def refusal(content, form, tmp_path, **options):
    file = tmp_path / "trace"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_traces(file, form, **({"every": 1.0, "scale": 1.0} | options))
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert "Errno" not in message
    assert len(message) < len(str(file)) + 250
    return message


@pytest.mark.parametrize("content", MAHIMAHI.values(), ids=MAHIMAHI)
@pytest.mark.parametrize("every", [1e-3, 1e6])
def test_a_hostile_mahimahi_trace_is_refused(tmp_path, content, every):
    refusal(content, "mahimahi", tmp_path, every=every)


@pytest.mark.parametrize("content", CSV.values(), ids=CSV)
def test_a_hostile_csv_trace_is_refused(tmp_path, content):
    refusal(content, "csv", tmp_path)


@given(st.floats(-1e308, 1e308), st.lists(st.tuples(st.floats(allow_nan=True), st.floats())), st.floats(1e-300, 1e300))
@settings(max_examples=200)
def test_every_csv_trace_that_is_read_moves_time_forward(tmp_path_factory, start, rows, scale):
    file = tmp_path_factory.getbasetemp() / "any.csv"
    file.write_text(HEAD + "".join(f"{time!r},{rate!r}\n" for time, rate in [(start, 1e6), *rows]))
    try:
        [trace] = read_traces(file, "csv", every=1.0, scale=scale).values()
    except UserError:
        return
    assert 1e-6 <= trace.period < math.inf
    assert all(rate == 0 or RATES[0] <= rate <= RATES[1] for rate in trace.rates)
    now = 0.0
    for _ in range(20):
        assert trace.next_change(now) > now
        now = min(trace.next_change(now), 1e300)


@pytest.mark.parametrize("scale", [1e308, 1e-300, 5e-324])
def test_a_scale_out_of_range_is_refused_before_the_run_with_its_field(tmp_path, scale, capsys):
    (tmp_path / "t.csv").write_text(HEAD + "0,1e6\n1,2e6\n")
    data = copy.deepcopy(SMALL)
    capacity = {"kind": "trace", "file": str(tmp_path / "t.csv"), "format": "csv", "scale": scale}
    data["network"]["links"]["5g"] = {"down": capacity, "up": "1 Mbit/s"}
    with pytest.raises(UserError, match=r"network\.links\.5g\.down\.file.*expected rates.*with the scale"):
        rehearse(check(data))


@pytest.mark.parametrize("length", [300, 4000, 5000, 100_000])
@pytest.mark.parametrize("field", ["network.links.5g.down.file", "network.topology.file", "fleet.0.availability.file"])
def test_a_file_name_of_any_length_is_refused_with_its_field(length, field, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "x" * length
    changes = {
        "network.links.5g.down.file": f"network.links.5g.down={{kind: trace, file: {name}}}",
        "network.topology.file": f"network.topology={{kind: file, file: {name}.json}}",
        "fleet.0.availability.file": f"fleet.0.availability={{kind: trace, file: {name}}}",
    }
    extra = ["--set", "network.links.5g.redraw=null"] if "links" in field else []
    assert main(["scenario", "validate", "5g_100clients", "--set", changes[field], *extra]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: --set ")
    assert "fault" not in message
