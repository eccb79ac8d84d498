"""Traces from tables and logs: each column, each rule about rows, one message for each wrong file."""

from __future__ import annotations

import copy
import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl import shipped
from edgefl.errors import UserError
from edgefl.network import TraceColumns, read_traces
from edgefl.scenario.loading import check
from edgefl.scenario.rehearsal import rehearse

from ..small_runs import SMALL

COLUMNS = {"time": "t", "rate": "rate", "unit": "Mbit/s"}
RUNS = {**COLUMNS, "group": "run", "missing": ["-", "NA"]}


def read(folder, content, form=COLUMNS, **options):
    file = folder / "trace.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_traces(file, TraceColumns.model_validate(form) if isinstance(form, dict) else form, **options)


def values(trace, *moments):
    return [trace.value(moment) for moment in moments]


def test_a_table_with_columns_of_its_own_gives_a_trace_for_each_group(tmp_path):
    text = "cell,run,t,rate\n1,b,5,1\n1,a,0,3\n9,b,6,2\n\n9,a,2,4\n"
    found = read(tmp_path, text, RUNS)
    assert list(found) == ["b", "a"]
    assert values(found["b"], 0, 1, 2) == [1e6, 2e6, 1e6]
    assert values(found["a"], 0, 1.9, 2, 3.9) == [3e6, 3e6, 4e6, 4e6]
    assert (found["a"].period, found["b"].period) == (4.0, 2.0)
    several = read(tmp_path, text.replace("\n9,", "\n1,"), {**RUNS, "group": ["run", "cell"]})
    assert list(several) == ["b/1", "a/1"]


@pytest.mark.parametrize(("unit", "bits"), [("bit/s", 1), ("Mbps", 1e6), ("kB/s", 8e3)])
def test_a_unit_is_a_factor(tmp_path, unit, bits):
    [trace] = read(tmp_path, "t,rate\n0,5\n1,7\n", {**COLUMNS, "unit": unit}).values()
    assert values(trace, 0, 1) == [5 * bits, 7 * bits]


@pytest.mark.parametrize(
    ("time_format", "times"),
    [
        ("s", "1582000000.5 1582000001.5 1582000003.5"),
        ("ms", "7500 8500 10500"),
        ("iso", "2020-02-28T23:59:59 2020-02-29T00:00:00 2020-02-29T00:00:02"),
        ("iso", "2020-02-28T23:59:59+01:00 2020-02-28T23:00:00Z 2020-02-28T20:00:02-03:00"),
        ("YYYY.MM.DD_HH.MM.SS", "2020.02.28_23.59.59 2020.02.29_00.00.00 2020.02.29_00.00.02"),
    ],
)
def test_times_in_each_format_are_seconds_from_the_first(tmp_path, monkeypatch, time_format, times):
    monkeypatch.setenv("TZ", "Europe/Dublin")  # the machine's zone has no effect
    text = "t,rate\n" + "".join(f"{time},{rate}\n" for time, rate in zip(times.split(), (1, 2, 3), strict=True))
    [trace] = read(tmp_path, text, {**COLUMNS, "time_format": time_format}).values()
    assert trace.times == [0.0, 1.0, 3.0]
    assert trace.period == 5.0


ROWS = [(0, 4.5), (1, 0.25), (2, 12)]
FORMS = {
    "commas": ("{}, {}", "."), "tabs": ("{}\t{}", "."), "spaces": ("  {}    {}", "."), "semicolons": ("{};{}", ","),
    "tabs and decimal commas": ("{}\t{}", ","), "spaces and decimal commas": ("{}  {}", ","),
    "quoted": ('"{}","{}"', "."),
}  # fmt: skip


@pytest.mark.parametrize("header", [None, ("t", "rate"), ("# a comment\nt", "rate")], ids=["none", "names", "comment"])
@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_table_is_found_out(tmp_path, form, header):
    line, point = FORMS[form]
    end = "\r\n" if header is None else "\n"
    rows = [line.format(time, f"{rate:.2f}".replace(".", point)) for time, rate in ROWS]
    names = [] if header is None else [line.format(*header).lstrip('"').replace('"', "")]
    for columns in ({"time": 1, "rate": 2}, *([{}] if header else [])):  # numbers serve with a header, too
        [trace] = read(tmp_path, end.join([*names, *rows]) + end, {**COLUMNS, **columns}).values()
        assert values(trace, 0, 1, 2) == [4.5e6, 0.25e6, 12e6]
        assert trace.period == 3.0


def test_columns_without_a_header_have_numbers(tmp_path):
    text = "7 0.5 a 3\n7 1.5 a 4\n8 0.5 b 5\n8 2.5 b 6\n"
    found = read(tmp_path, text, {**COLUMNS, "time": 2, "rate": 4, "group": [3, 1]})
    assert {name: values(trace, 0, 1.5) for name, trace in found.items()} == {"a/7": [3e6, 4e6], "b/8": [5e6, 5e6]}
    assert list(read(tmp_path, text, {**COLUMNS, "time": 2, "rate": 4, "group": 3})) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "form", "message"),
    [
        ("0\t4\n1\t5\n", COLUMNS, r"column 't', found only numbers in the first line \(0, 4\); .*time: 1, rate: 2"),
        ("0;4\n1;5\n", "csv", r"column '.*', found only numbers in the first line \(0, 4\)"),
        ("0 4\n1 5\n", "mahimahi", r"one whole millisecond .*, found '0 4'; a table needs a format, such as {time: 1"),
        ("t rate\n0 4\n1 5\n", {**COLUMNS, "time": 1}, "expected one column '1' in the header"),
        ("0 4\n1 5\n", {**COLUMNS, "time": 1, "rate": 3}, r"column '3', found only numbers"),
    ],
)  # fmt: skip
def test_a_table_that_needs_another_format_says_which(tmp_path, text, form, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, text, form)


GAP = "t,rate,state\n5,8,D\n5,40,D\n{}\n60,16,D\n61,2,D\n"


@pytest.mark.parametrize(
    "skipped", ["6,-,D", "6,3,I", "6,3,I\n7,-,D\n8,1,I", "5.5,3,I\n6,-,D"], ids=["missing", "where", "many", "sooner"]
)
def test_equal_times_share_the_time_to_the_next_row_though_it_is_skipped(tmp_path, skipped):
    columns = {**COLUMNS, "where": {"state": "D"}, "missing": ["-"]}
    [trace] = read(tmp_path, GAP.format(skipped), columns).values()
    shared = float(skipped.split(",")[0]) - 5
    assert values(trace, 0.49 * shared, 0.51 * shared, 0.99 * shared) == [8e6, 40e6, 40e6]
    assert values(trace, 1.01 * shared, 54.9, 55, 56) == [24e6, 24e6, 16e6, 2e6]
    assert trace.period == 57


def test_equal_times_of_another_trace_are_no_next_row(tmp_path):
    [a, _] = read(tmp_path, "run,t,rate\na,0,2\na,0,4\nb,1,1\nb,2,1\na,4,6\n", RUNS).values()
    assert values(a, 1.9, 2, 3.9, 4) == [2e6, 4e6, 4e6, 6e6]


def test_a_log_without_a_row_of_the_state_says_so(tmp_path):
    with pytest.raises(UserError, match="expected rows with state D, found none"):
        read(tmp_path, "t,rate,state\n0,1,I\n1,2,I\n", {**COLUMNS, "where": {"state": "D"}})


def test_a_row_without_a_measurement_leaves_the_rate_before_it_valid(tmp_path):
    found = read(tmp_path, "run,t,rate\na,0,-\na,1,5\na,2,NA\na,3,-\na,4,6\nb,0,1\nb,1,1\n", RUNS)
    assert values(found["a"], 0, 2.9, 3, 5.9) == [5e6, 5e6, 6e6, 6e6]
    assert found["a"].period == 6.0
    idle = read(tmp_path, "t,rate,state\n0,5,D\n1,0,I\n2,6,D\n", {**COLUMNS, "where": {"state": "D"}})[""]
    assert values(idle, 0, 1.5, 2) == [5e6, 5e6, 6e6]
    numbered = read(tmp_path, "t,rate,n\n0,5,8\n0,7,1\n2,6,8\n", {**COLUMNS, "where": {"n": 8}, "missing": [0]})[""]
    assert values(numbered, 0, 2) == [5e6, 6e6]


def test_rows_with_equal_times_share_the_time_to_the_next_one(tmp_path):
    [trace] = read(tmp_path, "t,rate\n0,1\n0,2\n0,3\n0,4\n2,5\n3,6\n3,8\n").values()
    assert values(trace, 0, 0.5, 1, 1.5, 2, 3, 3.5) == [1e6, 2e6, 3e6, 4e6, 5e6, 6e6, 8e6]
    assert trace.period == 4.0


rows = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10**6)), min_size=2).filter(
    lambda found: len({time for time, _ in found}) > 1
)


@settings(max_examples=30)
@given(rows)
def test_a_table_passes_as_many_bits_as_its_rows_say(tmp_path_factory, found):
    found = sorted(found, key=lambda row: row[0])
    text = "t,rate\n" + "".join(f"{time},{rate}\n" for time, rate in found)
    [trace] = read(tmp_path_factory.getbasetemp(), text).values()
    times = sorted({time for time, _ in found})
    lengths = [b - a for a, b in itertools.pairwise(times)]
    lengths.append(lengths[-1])
    means = [np.mean([rate for moment, rate in found if moment == time]) for time in times]
    assert trace.period == sum(lengths)
    assert trace.mean() * trace.period == pytest.approx(1e6 * np.dot(means, lengths), rel=1e-9)


def test_a_byte_order_mark_line_ends_spaces_and_further_cells_do_not_matter(tmp_path):
    plain = read(tmp_path, "t,rate\n0,1\n1,2\n")[""]
    other = read(tmp_path, b'\xef\xbb\xbf t ,"rate",,\r\n0, 1,x\r\n"1",2 ,,,\r\n')[""]
    assert (other.times, other.rates, other.period) == (plain.times, plain.rates, plain.period)


WRONG = {
    "no rows": ("run,t,rate\n", "rows below the header, found none"),
    "no such column": ("run,t,rates\n", "column 'rate' in the header; did you mean 'rates'"),
    "a column twice": ("run,t,rate,rate\n", "one column 'rate' in the header; found 2"),
    "a short row": ("run,t,rate\na,0\n", "line 2: expected a value in the column 'rate'"),
    "a negative rate": ("run,t,rate\na,0,1\na,1,-2\n", "line 3: rate: expected a number of at least 0.*found '-2'"),
    "no number": ("run,t,rate\na,0,nan\n", "line 2: rate: expected a number"),
    "an unknown mark": ("run,t,rate\na,0,\n", "line 2: rate: expected a number.*found ''"),
    "a time that is a date": ("run,t,rate\na,2020-01-01,1\n", "line 2: t: expected a number in s"),
    "times that fall": ("run,t,rate\na,0,1\nb,9,1\na,2,1\na,1,1\n", "line 5: t: expected times that do not fall"),
    "a group without rates": ("run,t,rate\na,0,1\na,1,1\nb,0,-\n", "two times or more of the trace 'b', found 0"),
    "a group of one time": ("run,t,rate\na,0,1\na,0,1\n", "two times or more of the trace 'a', found 1"),
    "another encoding": ("run,t,rate\nà,0,1\n".encode("latin-1"), "expected text in UTF-8"),
    "a tiny rate": ("run,t,rate\na,0,1e-9\na,1,1\n", "expected rates of 0, or from 1 to 1e"),
    "a tiny period": ("run,t,rate\na,0,1\na,1e-9,1\n", "intervals of 1 ms or more"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_each_wrong_table_gets_one_message(tmp_path, wrong):
    content, message = WRONG[wrong]
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path, content, RUNS)
    assert str(caught.value).startswith(f"{tmp_path / 'trace.csv'}: ")
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    ("time_format", "time"), [("iso", "2020-02-30T00:00:00"), ("YYYY.MM.DD_HH.MM.SS", "2020.13.41_00.00.00")]
)
def test_a_wrong_date_is_refused_with_an_example_of_a_right_one(tmp_path, time_format, time):
    with pytest.raises(UserError, match=r"line 2: t: expected .* as 2020.02.13.13.57.29, found"):
        read(tmp_path, f"t,rate\n{time},1\n", {**COLUMNS, "time_format": time_format})


LOG = """1289406399 549692 59.851754 10.781778 248069 1008
1289406400 550772 NOFIX NOFIX 191698 1080

1453121792686 41287 51.0386553301824 3.73225142858955 2728896 0999
"""


def test_a_log_of_six_columns_is_bytes_over_milliseconds(tmp_path):
    [trace] = read(tmp_path, LOG, "hsdpa").values()
    assert trace.times == [0.0, 1.008, 2.088]
    assert trace.rates == pytest.approx([8 * 248069 / 1.008, 8 * 191698 / 1.08, 8 * 2728896 / 0.999], rel=1e-12)
    assert trace.mean() * trace.period == pytest.approx(8 * (248069 + 191698 + 2728896), rel=1e-12)


@pytest.mark.parametrize("line", ["1,2,3,4,5,6", "1 2 3 4 5", "1 2 3 4 5 0"])
def test_a_wrong_line_of_a_log_is_refused(tmp_path, line):
    with pytest.raises(UserError, match="line 5: expected six columns, the fifth a number of bytes"):
        read(tmp_path, LOG + line + "\n", "hsdpa")


PRESETS = {
    "5gophers": (
        "protocol,carrier,num_tcp_conn,server_location,run_num,seq_num,throughput_mbps\n"
        "TCP,A,1,US-East,1,0,1.5\nTCP,A,1,US-East,1,1,2\nTCP,A,8,US-East,2,0,3\nTCP,A,8,US-East,2,2,4\n",
        {"TCP/A/1/US-East/1": [1.5e6, 2e6], "TCP/A/8/US-East/2": [3e6, 3e6]},
    ),
    "lumos5g": (
        "run_num,seq_num,abstractSignalStr,latitude,longitude,movingSpeed,compassDirection,nrStatus,lte_rssi,lte_rsrp,"
        "lte_rsrq,lte_rssnr,nr_ssRsrp,nr_ssRsrq,nr_ssSinr,Throughput,mobility_mode,trajectory_direction,tower_id\n"
        "1,1.0,2,0,0,0,150,CONNECTED,,,,,,,,78,driving,CW,16\n1,2.0,2,0,0,0,9,CONNECTED,,,,,,,,117,driving,CW,16\n"
        "1,1.0,2,0,0,0,150,CONNECTED,,,,,,,,5,walking,ACW,3\n1,2.0,2,0,0,0,9,CONNECTED,,,,,,,,6,walking,ACW,3\n",
        {"driving/CW/1": [78e6, 117e6], "walking/ACW/1": [5e6, 6e6]},
    ),
    "ucc5g": (
        "Timestamp,Operatorname,NetworkMode,CQI,DL_bitrate,UL_bitrate,State\n"
        "2020.02.13_13.57.29,B,5G,-,10,7,I\n2020.02.13_13.57.30,B,5G,-,169,129,D\n2020.02.13_13.57.31,B,5G,8,128,1,D\n",
        {"": [169e3, 128e3]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", PRESETS)
def test_a_published_format_is_read_by_its_name(tmp_path, form):
    text, expected = PRESETS[form]
    found = read(tmp_path, text, form)
    assert {name: values(trace, 0, 1) for name, trace in found.items()} == expected


def test_a_scale_out_of_range_is_refused_before_the_run_with_its_field(tmp_path):
    (tmp_path / "t.csv").write_text("seconds,bits_per_second\n0,1e6\n1,2e6\n")
    data = copy.deepcopy(SMALL)
    capacity = {"kind": "trace", "file": str(tmp_path / "t.csv"), "format": "csv", "scale": 1e30}
    data["network"]["links"]["5g"] = {"down": capacity, "up": "1 Mbit/s"}
    with pytest.raises(UserError, match=r"network\.links\.5g\.down\.file.*expected rates.*with the scale"):
        rehearse(check(data))


def test_the_shipped_traces_are_small_and_name_their_licence():
    file = shipped.files("traces")["5gophers"]
    assert file.stat().st_size < 200_000
    assert "Creative Commons Attribution 4.0" in (file.parent / "README.md").read_text()
    assert len(read_traces(file, "5gophers")) == 60


EPOCH = 1777888800
STAMPS = {
    "epoch ms": ([1000 * (EPOCH + i) for i in range(4)], "s", "time_format: ms.*period of 4 s"),
    "epoch us as ms": ([1_000_000 * EPOCH + 500_000 * i for i in range(4)], "ms", "time_format: us.*period of 2 s"),
    "epoch ns": ([10**9 * (EPOCH + 2 * i) + i for i in range(4)], "s", "time_format: ns"),
    "epoch s as ms": ([EPOCH + i for i in range(4)], "ms", "time_format: s.*period of 4 s"),
    "ms from 0": ([1000 * i for i in range(4)], "s", "1000 s.*time_format: ms"),
    "us from 0": ([250_000 * (i + 1) for i in range(4)], "s", "time_format: us.*period of 1 s"),
    "iperf 2": ([20260504095930 + i for i in range(9)], "s", "time_format: YYYYMMDDHHMMSS"),
    "iperf 2 as ms": ([20260504095930 + i for i in range(9)], "ms", "time_format: YYYYMMDDHHMMSS"),
    "a clock": ([100000 + 100 * (i // 60) + i % 60 for i in range(200)], "s", "hours, minutes and seconds"),
    "equal stamps": ([f"2026-05-04T{i // 6:02}:00:00" for i in range(24)], "iso", "would share 3600 s"),
    "sessions": ([*range(9), *range(7200, 7209)], "s", "longest gap of 7192 s.*would be gaps"),
    "a late summary": ([*range(1, 11), 3600], "s", "longest gap of 3590 s.*summary"),
    "a summary": ([*range(1, 11), 10, 10], "s", "the mean or the sum.*remove a summary"),
    "a sum of times": ([*range(10), 45, 45], "s", "the mean or the sum.*remove a summary"),
    "a later summary of bytes": ([*range(10), 10, 11], "s", "the mean or the sum.*remove a summary"),
    "days": ([20260428, 20260429, 20260430, 20260501], "s", "dates .*time_format: iso"),
    "hours of days": ([2026050422, 2026050423, 2026050500], "s", "dates .*time_format: iso"),
    "minutes of days": ([202605040958, 202605040959, 202605041000], "ms", "dates .*time_format: iso"),
    "years of two digits": ([260504095958, 260504095959, 260504100000], "s", "dates .*time_format: iso"),
}


@pytest.mark.parametrize("kind", STAMPS)
def test_times_that_cannot_be_meant_are_refused_with_what_they_would_be(tmp_path, kind):
    times, form, message = STAMPS[kind]
    last = {"a summary": (6, 5.9), "a sum of times": (6, 6.1), "a later summary of bytes": (60, 59)}.get(kind)
    rates = itertools.cycle((8, 2, 16)) if last is None else [*(5, 6, 7, 5, 6, 7, 5, 6, 7, 6), *last]
    text = "t,rate\n" + "".join(f"{time},{rate}\n" for time, rate in zip(times, rates, strict=False))
    with pytest.raises(UserError, match=f"t: found a period of .* s, steps of .*{message}"):
        read(tmp_path, text, {**COLUMNS, "time_format": form})


def test_the_name_of_a_column_says_its_unit(tmp_path):
    names = {"time (ns GMT)": "ns", "elapsedMs": "ms", "t_us": "us", "Zeit [min]": "min", "hour": "h", "day": "day"}
    for name, unit in {**names, "Millisekunden": "ms", "heures": "h"}.items():
        text = f"{name},rate\n" + "".join(f"{time},1\n" for time in (0, 20, 40))
        with pytest.raises(UserError, match=f"by the name of the column .time_format: {unit}"):
            read(tmp_path, text, {**COLUMNS, "time": name})
    [trace] = read(tmp_path, "hour,rate\n0,1\n1,2\n", {**COLUMNS, "time": "hour", "time_format": "h"}).values()
    assert trace.period == 7200
    [trace] = read(tmp_path, "second of day,rate\n0,1\n1,2\n", {**COLUMNS, "time": "second of day"}).values()
    assert trace.period == 2
    [trace] = read(tmp_path, "seconds,rate\n0,1\n5000,2\n10000,3\n", {**COLUMNS, "time": "seconds"}).values()
    assert trace.period == 15000


@pytest.mark.parametrize(
    ("times", "rates", "said"),
    [
        ([f"{45782 + hour / 24:.6f}" for hour in range(9)], [8, 2, 16] * 3, "days of a spreadsheet"),
        (range(10), [5, 6, 7, 5, 6, 7, 5, 7, 6, 6], "if it is a summary"),
        (range(10), [5, 6, 7, 5, 6, 7, 5, 7, 6, 6.1], None),
        ([45782 + number / 10 for number in range(9)], [8, 2, 16] * 3, None),
    ],
)
def test_what_may_be_a_day_or_a_summary_is_mentioned(tmp_path, times, rates, said):
    text = "t,rate\n" + "".join(f"{time},{rate}\n" for time, rate in zip(times, rates, strict=True))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        read(tmp_path, text)
    assert [said in str(each.message) for each in found] == ([] if said is None else [True])


@pytest.mark.parametrize(
    "text", ["t,rate\n0,1,234\n1,950\n", "t rate\n0 1 234\n1 950\n", "t rate\n0 1\N{NO-BREAK SPACE}234\n1 950\n"]
)
def test_thousands_that_make_two_cells_are_refused(tmp_path, text):
    with pytest.raises(UserError, match="line 2: expected at most 2 values, found 3"):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("times", "form", "period"),
    [
        ((f"{EPOCH}000000123", f"{EPOCH + 2}002000456", f"{EPOCH + 4}004000789"), "ns", 6.006000999),
        (("250000", "500000", "750000"), "us", 0.75),
        (("20260504095958", "20260504095959", "20260504100000.5"), "YYYYMMDDHHMMSS", 4),
        (("0", "3600", "7200"), "s", 10800),
        (("0", "300", "600"), "s", 900),
    ],
)
def test_plausible_times_are_read_to_the_nanosecond(tmp_path, times, form, period):
    text = "t,rate\n" + "".join(f"{time},{rate}\n" for time, rate in zip(times, (1, 2, 3), strict=True))
    [trace] = read(tmp_path, text, {**COLUMNS, "time_format": form}).values()
    assert trace.period == pytest.approx(period, abs=1e-9)


NUMBERS = {
    ("1,234", "12,000", "950", "1,050"): None,
    ("1.234", "12.000", "950", "1.050"): None,
    ("1,234", "2,345"): None,
    ("1,25", "12,5", "950", "1,050"): [1.25, 12.5, 950, 1.05],
    ("0,950", "1,234"): [0.95, 1.234],
    ("1.234", "2.345", "3.000"): [1.234, 2.345, 3.0],
    ("0", "1.001", "2.002"): [0, 1.001, 2.002],
    ("1,234.5", "950"): [1234.5, 950],
    ("1.234.567", "950"): [1234567, 950],
    ("1.299,99", "2"): [1299.99, 2],
}


@pytest.mark.parametrize("separator", ["\t", ";"])
@pytest.mark.parametrize("texts", NUMBERS, ids=" ".join)
def test_thousands_are_thousands_or_refused(tmp_path, texts, separator):
    expected = NUMBERS[texts]
    text = separator.join(("t", "rate")) + "\n" + "".join(f"{i}{separator}{each}\n" for i, each in enumerate(texts))
    if expected is None:
        with pytest.raises(UserError, match=r"rate: '1.234' may be 1234 or 1\.234"):
            read(tmp_path, text)
    else:
        [trace] = read(tmp_path, text).values()
        assert values(trace, *range(len(texts))) == pytest.approx([1e6 * each for each in expected], rel=1e-15)


def test_another_column_shows_what_a_comma_is(tmp_path):
    columns = {**COLUMNS, "unit": "kbit/s"}
    [trace] = read(tmp_path, "t\trate\twatts\n0.5\t1,234\t2.25\n1.5\t950\t2.5\n", columns).values()
    assert values(trace, 0, 1) == [1.234e6, 950e3]


def test_validate_says_what_the_traces_of_a_link_are(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("t,rate,run\n0,8,a\n1,2,a\n4,2,a\n0,1,b\n1,1,b\n")
    data = copy.deepcopy(SMALL)
    capacity = {"kind": "trace", "file": str(file), "format": RUNS | {"missing": []}}
    data["network"]["links"]["5g"] = {"down": capacity, "up": "1 Mbit/s"}
    a, b = rehearse(check(data))
    assert (a.place, a.name, a.period, a.gap) == ("network.links.5g.down", "a", 7.0, 3.0)
    assert (a.mean, b.name, b.mean) == (pytest.approx(1e6 * (8 + 2 * 6) / 7), "b", 1e6)
