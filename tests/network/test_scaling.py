"""Links scaled by a factor have the factor times the capacity at every time, from the same draws and files."""

import numpy as np
import pytest

from edgefl.network import replayed
from edgefl.network.client_links import ClientLinks
from edgefl.network.specs import LinkSpec

UNIFORM = {"kind": "uniform", "low": 1e6, "high": 3e6}
PROCESS = {"kind": "process", "quantiles": {10: 1e6, 90: 9e6}}
FACTOR = 0.37


class Network:
    """Keeps the capacities that links are given, by the number of the link."""

    def __init__(self, topology):
        self.topology, self.constant, self.followed = topology, {}, {}

    def set_capacities(self, numbers, capacities):
        self.constant |= dict(zip(numbers.tolist(), capacities.tolist(), strict=True))

    def follow(self, number, process):
        self.followed[number] = process


class Topology:
    def access(self, client, *, up):
        return 2 * int(client.partition("/")[2]) + up


@pytest.fixture
def trace(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text("seconds,bits_per_second\n0,2000000\n1,8000000\n3,4000000\n")
    return {"kind": "trace", "file": str(file), "format": "csv"}


def links_of(**ways):
    return ClientLinks({"l": LinkSpec.model_validate(ways)}, ["l"] * 5, seed=3)


def given(links):
    network = Network(Topology())
    links.attach(network)
    times = np.linspace(0, 20, 41)
    followed = {number: [process.value(time) for time in times] for number, process in network.followed.items()}
    return network.constant, followed


@pytest.mark.parametrize("down", [5e6, UNIFORM, PROCESS, "trace"])
def test_every_capacity_is_multiplied(trace, down):
    links = links_of(down=trace if down == "trace" else down, up=UNIFORM)
    constant, followed = given(links)
    scaled_constant, scaled_followed = given(links.scaled(FACTOR))
    assert scaled_constant == pytest.approx({key: FACTOR * rate for key, rate in constant.items()}, nan_ok=True)
    assert scaled_followed.keys() == followed.keys()
    for number, rates in followed.items():
        assert scaled_followed[number] == pytest.approx([FACTOR * rate for rate in rates])
    assert given(links) == (constant, followed)


def test_no_file_is_read_again(trace, monkeypatch):
    links = links_of(down=trace, up=5e6)
    monkeypatch.setattr(replayed, "read_traces", None)
    given(links.scaled(2))


@pytest.mark.parametrize(
    ("down", "usual"), [(5e6, 5e6), (UNIFORM, 2e6), (PROCESS, 5e6), ("trace", (2e6 + 2 * 8e6 + 2 * 4e6) / 5)]
)
def test_the_usual_capacity_is_the_middle_of_what_a_client_has(trace, down, usual):
    links = links_of(down=trace if down == "trace" else down, up=1e6)
    assert links.usual("down").tolist() == pytest.approx([usual] * 5)
    assert links.scaled(FACTOR).usual("down").tolist() == pytest.approx([FACTOR * usual] * 5)
