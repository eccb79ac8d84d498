"""A network over which nothing can ever arrive ends the run instead of the program."""

from __future__ import annotations

import json

import pytest

from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.rerun.verify import verify


@pytest.mark.parametrize("protocol", [{}, {"kind": "asynchronous"}])
def test_a_link_without_capacity_stalls_the_run(small, tmp_path, protocol):
    scenario = small(network__topology__server__up=0, protocol=protocol)
    folder = run(scenario, out=tmp_path / "run", train=False)
    entry = json.loads((folder / "summary.json").read_text())["methods"]["fedavg"][0]
    assert (entry["stop"]["reason"], entry["stop"]["round"]) == ("stalled", 0)
    assert entry["stop"]["message"] == "all active transfers are on links with zero capacity"
    assert entry["bytes"]["down"] > 0
    assert entry["bytes"]["up"] == 0
    assert verify(folder) == []


def test_rates_and_times_beyond_reason_are_refused(small):
    with pytest.raises(UserError, match="expected 0 or at least 1 bit/s"):
        small(network__topology__server__up="1e-9 bit/s")
    with pytest.raises(UserError, match=r"latency: expected 1e\+10 or less"):
        small(network__topology__latency="1e300 s")
