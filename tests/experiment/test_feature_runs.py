"""Runs with codecs, local parts and prefetching."""

import json

import pyarrow.parquet as pq
import pytest

from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.experiment.wiring import skeleton
from edgefl.planning.planning import plan
from edgefl.rerun.verify import verify

from ..small_runs import ACCIDENTS, CELLS, LOCAL_PART, replay

SPARSE = {"up": {"kind": "top_k", "fraction": 0.02}, "down": {"kind": "quantise", "rounding": "stochastic"}}
METHODS = [
    "fedavg",
    {"method": "fedavg", "as": "sparse", "codec": SPARSE},
    {"method": "fedbr", "codec": SPARSE},
    {"method": "fedadc", "codec": SPARSE, "overlap": True},
    {"method": "scaffold", "codec": {"up": {"kind": "quantise", "bits": 4}, "down": "cast"}},
]
PROTOCOLS = {
    "synchronous": {"kind": "synchronous"},
    "deadline": {"kind": "synchronous", "deadline": 0.08},
    "asynchronous": {"kind": "asynchronous", "buffer": 2, "concurrency": 4},
    "hierarchical": {"kind": "hierarchical"},
}


def settings(protocol):
    methods = [each for each in METHODS if protocol == "synchronous" or each == "fedavg" or "overlap" not in each]
    cells = {"network__topology": CELLS} if protocol == "hierarchical" else {}
    return {"methods": methods, "protocol": PROTOCOLS[protocol], "training__rounds": 6, **cells}


def traffic(folder, label):
    columns = ["round", "seconds", "bytes_down", "bytes_up", "joules"]
    return pq.read_table(folder / label / "seed-0" / "rounds.parquet", columns=columns).to_pydict()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Runs by protocol, trained once."""
    known = {}

    def make(small, protocol):
        if protocol not in known:
            scenario = small(**settings(protocol))
            known[protocol] = scenario, run(scenario, out=tmp_path_factory.mktemp(protocol) / "run")
        return known[protocol]

    return make


@pytest.mark.full
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_run_with_codecs_verifies_and_without_training_takes_the_same_bytes_seconds_and_joules(
    small, finished, protocol, tmp_path
):
    scenario, folder = finished(small, protocol)
    assert verify(folder) == []
    timed = run(scenario, out=tmp_path / "timed", train=False)
    for method in scenario.methods:
        if method.name != "fedbr":  # its scheduler reads what training says
            assert traffic(timed, method.label) == traffic(folder, method.label)


def test_bytes_are_those_of_the_formulas(small, tmp_path):
    scenario = small(methods=METHODS[1:2], training__rounds=2)
    folder = run(scenario, out=tmp_path / "run", train=False)
    shapes = [entry.shape for entry in skeleton(scenario).layout.parameters]
    down = sum(min(shape.numel() + 4, 4 * shape.numel()) for shape in shapes)
    up = 0
    for shape in shapes:
        n = shape.numel()
        k = -(-2 * n // 100)
        up += min(4 * k + min(4 * k, -(-n // 8)), 4 * n)
    assert not skeleton(scenario).layout.buffers
    rounds = traffic(folder, "sparse")
    assert set(rounds["bytes_down"]) == {3 * down}
    assert set(rounds["bytes_up"]) == {3 * up}


@pytest.mark.full
def test_a_cells_mean_crosses_its_backhaul_as_float32(small, finished):
    scenario, folder = finished(small, "hierarchical")
    events = pq.read_table(folder / "sparse" / "seed-0" / "events.parquet").to_pylist()
    relays = [event for event in events if event["kind"] == "transfer_end" and event["item"] == "relay"]
    sizes = skeleton(scenario).layout.block_bytes()
    assert {event["bytes"] for event in relays if event["target"] == "server"} == {sum(sizes)}
    assert max(event["bytes"] for event in relays if event["source"] == "server") < sum(sizes) / 3


@pytest.mark.full
def test_a_plan_knows_the_encoded_bytes(small, finished):
    scenario, folder = finished(small, "synchronous")
    for each in plan(scenario, methods=["sparse", "scaffold"]).methods:
        rounds = traffic(folder, each.label)
        assert each.bytes_down == pytest.approx(sum(rounds["bytes_down"]) / 6)
        assert each.bytes_up == pytest.approx(sum(rounds["bytes_up"]) / 6)


def test_a_methods_codec_replaces_the_scenarios_direction_by_direction(small):
    from edgefl.experiment.wiring import recipe_of
    from edgefl.methods.codecs.cast import Cast
    from edgefl.methods.codecs.quantise import Quantise

    scenario = small(
        training__codec={"up": "quantise", "down": "quantise"},
        methods=["fedavg", {"method": "fedavg", "as": "half", "codec": {"up": "cast"}}],
    )
    plain, half = (recipe_of(scenario, method).codecs for method in scenario.methods)
    assert (plain.up, plain.down) == (Quantise(), Quantise())
    assert (half.up, half.down) == (Cast(), Quantise())


@pytest.fixture
def fedbn(small):
    def made(**changes):
        return small(**{**LOCAL_PART, **changes})

    return made


@pytest.mark.full
@pytest.mark.parametrize("protocol", ["asynchronous", "synchronous"])
def test_each_client_is_tested_with_its_own_part(fedbn, tmp_path, protocol):
    changes = {"protocol": {"kind": protocol}, "methods": ["fedavg"], "training.rounds": 6, "training.local.epochs": 4}
    plain = {"name": "cnn", "width": 2, "norm": "batch"}
    personal = {"personalisation": {"kind": "calibration", "epochs": 1}}
    runs = [
        json.loads((run(fedbn(**changes, **more), out=tmp_path / name) / "summary.json").read_text())["methods"][
            "fedavg"
        ][0]
        for name, more in (("local", personal), ("averaged", {"model": plain, **personal}))
    ]
    assert runs[0]["bytes"]["up"] < runs[1]["bytes"]["up"]
    assert runs[0]["clients"] != runs[1]["clients"]
    # Two classes a client: statistics of its own data fit better than those of all.
    assert runs[0]["clients"]["mean"] > runs[0]["accuracy"]["final"]


ON, OFF = {"method": "fedadc", "overlap": True, "as": "on"}, {"method": "fedadc", "as": "off"}


@pytest.fixture(name="scenario")
def scenario_fixture(small):
    """The small scenario in cells, with accidents, jitter and slow links."""

    def make(**changes):
        protocol = {"kind": "hierarchical", "retries": 1}
        return small(network__topology=CELLS, protocol=protocol, **ACCIDENTS, **changes)

    return make


def test_overlap_between_cells_changes_times_and_not_one_bit_of_accuracy(scenario, tmp_path):
    folder = run(scenario(methods=[ON, OFF], training__rounds=4), out=tmp_path / "run")
    on, off = (pq.read_table(folder / name / "seed-0" / "rounds.parquet").to_pylist() for name in ("on", "off"))
    for name in ("accuracy", "loss", "aggregated", "bytes_up"):
        assert [row[name] for row in on] == [row[name] for row in off]
    assert on[-1]["seconds"] < off[-1]["seconds"]


@pytest.mark.full
def test_overlap_between_cells_is_replayed_on_other_links_and_deadlines_are_not(scenario, tmp_path):
    folder = run(scenario(methods=[ON], training__rounds=4), out=tmp_path / "run")
    other = replay(folder, {"network.topology.backhaul.down": "1 Mbit/s"}, tmp_path / "replayed")
    assert verify(other) == []
    one, two = (pq.read_table(each / "on" / "seed-0" / "rounds.parquet").to_pylist() for each in (folder, other))
    assert [row["accuracy"] for row in one] == [row["accuracy"] for row in two]
    assert one[-1]["seconds"] < two[-1]["seconds"]
    closed = run(scenario(protocol__deadline="20 s", training__rounds=2), out=tmp_path / "bound")
    with pytest.raises(UserError, match="deadline the aggregated updates depend on arrival times"):
        replay(closed, {"network.topology.backhaul.down": "1 Mbit/s"}, tmp_path / "never")
