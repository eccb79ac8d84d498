"""Runs of every protocol and engine with training."""

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from edgefl.experiment import run
from edgefl.record.summary import read_summary
from edgefl.rerun.verify import verify

from ..small_runs import CELLS

ON_AIR = {**CELLS, "sharing": "airtime_fair"}


def test_accuracies_equal_the_synchronous_runs_bit_for_bit(small, tmp_path):
    settings = {"network__topology": ON_AIR, "methods": ["fedavg"], "training__cohort": 4}
    flat = run(small(**settings), out=tmp_path / "flat")
    cells = run(small(**settings, protocol={"kind": "hierarchical"}), out=tmp_path / "cells")
    assert verify(cells) == []
    columns = ["round", "accuracy", "loss", "bytes_up"]
    one, other = (
        pq.read_table(folder / "fedavg" / "seed-0" / "rounds.parquet", columns=columns) for folder in (flat, cells)
    )
    assert one.equals(other)


ALONE = {
    "synchronous": {},
    "deadline": {"protocol": {"kind": "synchronous", "deadline": "60 s"}},
    "asynchronous": {"protocol": {"kind": "asynchronous"}},
    "hierarchical": {"protocol": {"kind": "hierarchical"}, "network__topology": CELLS},
    "tcp": {"network__transport": {"kind": "tcp"}},
}


@pytest.mark.parametrize("settings", ALONE.values(), ids=ALONE)
def test_with_every_tensor_local_clients_train_alone_and_send_nothing(small, tmp_path, settings):
    folder = run(
        small(**settings, methods=["fedavg"], model__local=["*"], data__test="partitioned"), out=tmp_path / "run"
    )
    (entry,) = read_summary(folder / "summary.json")[1].methods["fedavg"]
    assert verify(folder) == []
    assert (entry.bytes.down, entry.bytes.up) == (0, 0)
    assert entry.seconds > 0


EQUAL = {
    "data__partition": {"kind": "iid"},
    "fleet": [{"profile": "jetson-nano", "share": 1.0, "link": "5g"}],
    "network__links__5g": {"down": "20 Mbit/s", "up": "20 Mbit/s"},
    "training__rounds": 5,
}


def rounds(folder, method):
    return pq.read_table(folder / method / "seed-0" / "rounds.parquet").to_pylist()


@pytest.mark.parametrize("method", ["fedavg", pytest.param("scaffold", marks=pytest.mark.full)])
def test_a_full_buffer_of_equal_clients_is_the_synchronous_run_bit_for_bit(small, tmp_path, method):
    settings = {**EQUAL, "methods": [method]}
    protocol = {"kind": "asynchronous", "buffer": 3, "concurrency": 3, "staleness": {"kind": "constant"}}
    one = run(small(**settings), out=tmp_path / "synchronous")
    other = run(small(**settings, protocol=protocol), out=tmp_path / "asynchronous")
    assert rounds(other, method) == rounds(one, method)
    assert verify(other) == []


@pytest.mark.full
def test_peers_that_average_with_all_others_have_fedavgs_model(small, tmp_path):
    models = []
    for number, protocol in enumerate(
        ({}, {"kind": "ring_all_reduce"}, {"kind": "gossip", "neighbours": "complete", "mixing": "uniform"})
    ):
        settings = {"training__cohort": 8, "data__partition": {"kind": "iid"}, "methods": ["fedavg"]}
        folder = run(small(**settings, protocol=protocol), out=tmp_path / str(number))
        assert verify(folder) == []
        models.append(load_file(folder / "fedavg" / "seed-0" / "final.safetensors"))
    star, ring, graph = models
    assert all(torch.equal(star[name], ring[name]) for name in star)
    torch.testing.assert_close(graph, star, rtol=0, atol=1e-6)
