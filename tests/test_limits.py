"""What is at a limit is accepted; what is just beyond it is refused with a message."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgefl import limits
from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.network.build import build_topology
from edgefl.network.specs import CellsTopology, FileTopology, GeneratedCapacity, LinkSpec
from edgefl.network.timeouts import Timeouts
from edgefl.network.topology import GraphLinks
from edgefl.network.traces import read_traces
from edgefl.record.column import column
from edgefl.record.tables import read_parquet
from edgefl.scenario.loading import check
from edgefl.sweep import settings_of
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
