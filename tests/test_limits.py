"""What is at a limit is accepted; what is just beyond it is refused with a message."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgefl import limits
from edgefl.cli import main
from edgefl.data.partitions.by_file import ByFile
from edgefl.data.samples import class_number
from edgefl.errors import UserError, WrongAnswer
from edgefl.experiment import run
from edgefl.fleet.availability import _read, read_trace
from edgefl.network.build import build_topology
from edgefl.network.replayed import TraceCapacity, traces_of
from edgefl.network.specs import CellsTopology, FileTopology, GeneratedCapacity, LinkSpec
from edgefl.network.timeouts import Timeouts
from edgefl.network.topology import GraphLinks
from edgefl.network.traces import read_mahimahi, read_traces
from edgefl.profiling.client_log import read_client_log
from edgefl.profiling.measurement import is_measurement
from edgefl.profiling.step_table import read_step_table
from edgefl.record.column import column
from edgefl.record.ranges import check_ranges
from edgefl.record.tables import read_parquet
from edgefl.scenario.loading import check
from edgefl.scenario.named_step import read_shape
from edgefl.sweep import settings_of
from edgefl.user_code import read_code
from edgefl.user_path import user_path
from edgefl.validation import validated
from edgefl.yaml_file import parse_yaml
from tests.small_runs import SMALL

WIFI = LinkSpec(down="1 Mbit/s", up="1 Mbit/s")


def link(redraw):
    return validated(LinkSpec, {"down": {"kind": "uniform", "low": 1, "high": 2}, "up": 1, "redraw": redraw})


def cells(count):
    rates = {"down": 1e6, "up": 1e6}
    return validated(CellsTopology, {"kind": "cells", "server": rates, "backhaul": rates, "cells": count})


def generated(step):
    return validated(GeneratedCapacity, {"kind": "process", "like": "4g_driving", "step": step})


def retries(count):
    return validated(Timeouts, {"transfer": 1, "retries": count})


def profile(rate):
    group = {**SMALL["fleet"][0], "share": 1, "overrides": {"compute": {"fp32_achievable": rate}}}
    return check({**SMALL, "fleet": [group]})


def seeds(count):
    return check({**SMALL, "seeds": list(range(count))})


def settings(count):
    return settings_of({"training.local.steps": list(range(count // 2)), "training.local.batch": [1, 2]})


@pytest.mark.parametrize(
    ("accept", "limit", "beyond"),
    [
        (link, "1 ms", "0.9 ms"),
        (generated, limits.LEAST_CHANGE_SECONDS, limits.LEAST_CHANGE_SECONDS * 0.9),
        (cells, limits.CELLS, limits.CELLS + 1),
        (retries, limits.RETRIES, limits.RETRIES + 1),
        (seeds, limits.SEEDS, limits.SEEDS + 1),
        (settings, limits.SETTINGS, limits.SETTINGS + 2),
        (profile, 1.0, 0.9),
        (lambda number: parse_yaml(f"a: {number}"), 2**1024 - 1, 2**1024),
        (lambda number: parse_yaml(f"a: 0x{number:x}"), 2**1024 - 1, 2**20000),
    ],
    ids=["redraw", "step", "cells", "retries", "seeds", "settings", "rate", "decimal", "hexadecimal"],
)
def test_a_value_beyond_its_limit_is_refused(accept, limit, beyond):
    accept(limit)
    with pytest.raises(UserError, match="expected"):
        accept(beyond)


@pytest.mark.parametrize(("seconds", "accepted"), [(0.001, True), (0.0009, False), (1e-300, False)])
def test_a_trace_changes_at_most_once_a_millisecond_in_the_mean(tmp_path, seconds, accepted):
    file = tmp_path / "trace.csv"
    file.write_text(f"seconds,bits_per_second\n0,1000000\n{seconds!r},2000000\n")
    if accepted:
        read_traces(file, "csv")
    else:
        with pytest.raises(UserError, match="expected intervals of 1 ms or more in the mean"):
            read_traces(file, "csv")


def test_a_small_file_that_expands_to_a_large_table_is_refused_before_it_is_read(tmp_path, monkeypatch):
    schema = pa.schema([column("round", pa.int32(), "", "the round")])
    file = tmp_path / "rounds.parquet"
    pq.write_table(pa.table({"round": pa.array([0] * 100_000, type=pa.int32())}), file)
    monkeypatch.setattr(limits, "TABLE_BYTES", 800_000)
    assert len(read_parquet(file, schema)) == 100_000
    monkeypatch.setattr(limits, "TABLE_BYTES", 799_999)
    assert file.stat().st_size * limits.TABLE_EXPANSION < 800_000
    with pytest.raises(UserError, match=r"rounds\.parquet: expected at most 799,999 bytes in memory, found 800,000"):
        read_parquet(file, schema)
    monkeypatch.setattr(limits, "TABLE_EXPANSION", 10_000)
    assert len(read_parquet(file, schema)) == 100_000


@pytest.mark.parametrize("figure", ["capacity", "latency"])
@pytest.mark.parametrize("value", ["fast", None, True, [1], float("nan"), 10**400, -1])
def test_a_graph_with_a_figure_that_is_no_number_is_refused_by_its_edge(figure, value):
    graph = nx.DiGraph()
    graph.add_edge("server", "client/0", **{"capacity": 8e6, "latency": 0.01, figure: value})
    with pytest.raises(UserError, match=f"edge 'server' -> 'client/0': expected a {figure} of at least 0"):
        GraphLinks(graph)


def test_a_large_graph_file_is_refused_before_it_is_read(tmp_path, monkeypatch):
    file = tmp_path / "graph.graphml"
    graph = nx.DiGraph()
    for client in range(SMALL["data"]["clients"]):
        for ends in (("server", f"client/{client}"), (f"client/{client}", "server")):
            graph.add_edge(*ends, capacity=8e6, latency=0.01)
    nx.write_graphml(graph, file)
    spec = FileTopology(kind="file", file=str(file))
    links = ["wifi"] * SMALL["data"]["clients"]
    build_topology(spec, {"wifi": WIFI}, links)
    monkeypatch.setattr(limits, "JSON_BYTES", file.stat().st_size - 1)
    with pytest.raises(UserError, match="graph"):
        build_topology(spec, {"wifi": WIFI}, links)


def availability(file):
    _read.cache_clear()
    return read_trace(str(file))


def trace_folder(file):
    return traces_of(validated(TraceCapacity, {"kind": "trace", "file": str(file.parent), "format": "csv"}), "down")


TRACE = "seconds,bits_per_second\n0,1000000\n1,2000000\n"
DEVICES = '[{"duration": 5, "active": [0], "inactive": [5], "finish_time": 9}]'
LOG = "round,download_seconds,compute_seconds,upload_seconds,bytes\n1,1,2,1,10\n2,1,2,1,10\n3,1,2,1,10\n"
STEPS = "model,method,batch,seconds\ncnn,fedavg,32,0.1\n"
SIZES = {
    "PYTHON_BYTES": ("part.py", "one = 1\n", read_code),
    "TRACE_BYTES": ("trace.csv", TRACE, lambda file: read_traces(file, "csv")),
    "TRACE_FOLDER_BYTES": ("trace.csv", TRACE, trace_folder),
    "AVAILABILITY_BYTES": ("devices.json", DEVICES, availability),
    "PARTITION_BYTES": ("part.csv", "client\n0\n1\n", lambda file: ByFile(file=str(file)).owners(2)),
    "STEP_TABLE_BYTES": ("steps.csv", STEPS, read_step_table),
    "MEASUREMENT_BYTES": ("measured.json", "{}", is_measurement),
    "CLIENT_LOG_BYTES": ("log.csv", LOG, read_client_log),
}


@pytest.mark.parametrize("limit", SIZES)
def test_a_file_larger_than_its_limit_is_refused_before_it_is_read(tmp_path, monkeypatch, limit):
    name, text, read = SIZES[limit]
    file = tmp_path / name
    file.write_text(text)
    monkeypatch.setattr(limits, limit, len(text))
    read(file)
    monkeypatch.setattr(limits, limit, len(text) - 1)
    with pytest.raises(UserError, match=r"expected .*at most"):
        read(file)


def test_a_folder_of_more_traces_than_the_limit_is_refused(tmp_path, monkeypatch):
    for name in ("0.csv", "1.csv"):
        (tmp_path / name).write_text(TRACE)
    monkeypatch.setattr(limits, "TRACE_FILES", 2)
    assert len(trace_folder(tmp_path / "0.csv")) == 2
    (tmp_path / "2.csv").write_text(TRACE)
    with pytest.raises(UserError, match="expected at most 2 files, found 3"):
        trace_folder(tmp_path / "0.csv")


def test_a_trace_of_more_intervals_than_the_limit_is_refused(tmp_path, monkeypatch):
    file = tmp_path / "trace"
    file.write_text("1\n10\n")
    monkeypatch.setattr(limits, "TRACE_INTERVALS", 10)
    assert read_mahimahi(file).period == 0.01
    file.write_text("1\n11\n")
    with pytest.raises(UserError, match=r"trace: expected at most 10 intervals of 0\.001 s"):
        read_mahimahi(file)


def test_a_text_of_more_values_than_the_limit_is_refused(monkeypatch):
    monkeypatch.setattr(limits, "YAML_VALUES", 5)
    assert parse_yaml("[1, 2, 3, 4]") == [1, 2, 3, 4]  # with the list itself: five
    with pytest.raises(UserError, match=r"expected at most 5 keys and values .*, found more"):
        parse_yaml("[1, 2, 3, 4, 5]")


@pytest.mark.parametrize("inner", ["", "1"])
def test_a_text_that_nests_deeper_than_the_limit_is_refused(inner):
    assert parse_yaml("[" * limits.DEPTH + inner + "]" * limits.DEPTH)
    with pytest.raises(UserError, match=f"expected at most {limits.DEPTH} levels of nested lists and mappings"):
        parse_yaml("[" * (limits.DEPTH + 1) + inner + "]" * (limits.DEPTH + 1))


def test_a_path_of_more_characters_than_the_limit_is_refused():
    assert user_path("a" * limits.PATH_CHARACTERS)
    with pytest.raises(UserError, match="at most 4096 characters"):
        user_path("a" * (limits.PATH_CHARACTERS + 1))


def test_devices_that_come_and_go_faster_than_the_limit_are_refused(tmp_path):
    file = tmp_path / "devices.json"
    file.write_text('[{"duration": 0.5, "active": [0], "inactive": [0.5], "finish_time": 1.0}]')
    availability(file)
    file.write_text('[{"duration": 0.5, "active": [0], "inactive": [0.5], "finish_time": 0.99}]')
    with pytest.raises(UserError, match="expected a finish_time of 1 s or more"):
        availability(file)


@pytest.mark.parametrize(("side", "accepted"), [(limits.SIDE, True), (limits.SIDE + 1, False)])
def test_generated_images_have_at_most_so_many_rows(side, accepted):
    data = {**SMALL, "data": {**SMALL["data"], "name": "synthetic", "shape": [1, side, 1]}}
    if accepted:
        check(data)
    else:
        with pytest.raises(UserError, match=f"data.shape: expected at most {limits.SIDE}"):
            check(data)


@pytest.mark.parametrize(("width", "accepted"), [(2**13, True), (2**13 + 1, False)])
def test_a_sample_has_at_most_so_many_numbers(width, accepted):
    text = f"1x{2**13}x{width}"
    if accepted:
        assert read_shape(text, field="--shape") == (1, 2**13, width)
    else:
        with pytest.raises(UserError, match="--shape: expected at most 67,108,864 numbers"):
            read_shape(text, field="--shape")


@pytest.mark.parametrize(("number", "kind"), [(limits.FIGURE, pa.float64()), (limits.COUNT, pa.int64())])
def test_a_figure_of_a_table_is_at_most_so_large(number, kind):
    check_ranges(pa.table({"joules": pa.array([number], kind)}), Path("rounds.parquet"))
    beyond = number + 1 if kind == pa.int64() else number * 1.001
    with pytest.raises(UserError, match=r"rounds\.parquet: joules: expected a number from 0 to"):
        check_ranges(pa.table({"joules": pa.array([beyond], kind)}), Path("rounds.parquet"))


def test_a_label_is_less_than_the_number_of_classes():
    assert class_number(np.array([0, limits.CLASSES - 1])) == limits.CLASSES
    with pytest.raises(WrongAnswer, match=f"found the label {limits.CLASSES}"):
        class_number(np.array([0, limits.CLASSES]))


def test_each_limit_says_why():
    lines = Path(limits.__file__).read_text().splitlines()
    for number, line in enumerate(lines):
        if " = " in line and line[0].isupper():
            assert lines[number + 1].startswith('"""'), line


def test_a_folder_whose_name_is_too_long_is_refused_by_replay(tmp_path, capsys):
    run(check({**SMALL, "training": {**SMALL["training"], "rounds": 1}}), out=tmp_path / "run")
    change = ["--set", "network.topology.latency=9 ms"]
    assert main(["replay", str(tmp_path / "run"), "-o", str(tmp_path / ("o" * 300)), *change]) == 2
    assert "cannot be written: File name too long" in capsys.readouterr().err


def test_a_run_whose_scenario_could_not_be_read_again_is_refused_before_it_begins(tmp_path, monkeypatch):
    scenario = check({**SMALL, "training": {**SMALL["training"], "rounds": 1}})
    size = (run(scenario, out=tmp_path / "run", train=False) / "scenario.yaml").stat().st_size
    monkeypatch.setattr(limits, "YAML_BYTES", size)
    run(scenario, out=tmp_path / "at", train=False)
    monkeypatch.setattr(limits, "YAML_BYTES", size - 1)
    with pytest.raises(UserError, match=f"expected a scenario of at most {size - 1:,} bytes .*, found {size:,}"):
        run(scenario, out=tmp_path / "beyond", train=False)
    assert not (tmp_path / "beyond").exists()
