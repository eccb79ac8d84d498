"""Hierarchical runs with real training: the accuracies are the synchronous run's, and the log verifies."""

from __future__ import annotations

import pyarrow.parquet as pq
import torch

from edgefl.experiment import run
from edgefl.methods.fedavg import mean_delta
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


def test_the_mean_of_cells_means_is_the_flat_mean_up_to_rounding():
    # The world averages flat; two levels add the same numbers in another order.
    random = torch.Generator().manual_seed(0)
    deltas = torch.randn(10, 1000, generator=random)
    weights = torch.rand(10, generator=random)
    weights /= weights.sum()
    flat = mean_delta(deltas, weights)
    shares = [weights[cell::3].sum() for cell in range(3)]
    means = torch.stack([mean_delta(deltas[cell::3], weights[cell::3] / shares[cell]) for cell in range(3)])
    torch.testing.assert_close(mean_delta(means, torch.stack(shares)), flat, rtol=0, atol=5e-7)
