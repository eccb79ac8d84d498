"""The price of published rounds is what a run of as many rounds would spend."""

import json
import math

import pytest
from typer.testing import CliRunner

from edgefl.cli.entry import app
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.planning.pricing import Pays, price
from edgefl.report import RunResult
from edgefl.scenario import load_scenario

METHODS = ["fedavg", "fedmlb", "fedprox"]
NEAR = {"network__topology__latency": 0}


def published(method, rounds, accuracy=0.5, **more):
    return {"method": method, "metric": "rounds_to", "accuracy": accuracy, "value": rounds, "source": "a table", **more}


TABLE = [
    published("fedavg", 40),
    published("fedmlb", 30),
    published("fedprox", 40),
    published("fedavg", 50, 0.6, more_than=True),
    published("fedmlb", 50, 0.6, more_than=True),
]


def links(factor):
    rate = {"kind": "uniform", "low": 4e4 * factor, "high": 28e4 * factor}
    return {"5g": {"down": rate, "up": rate, "redraw": "2 rounds"}}


@pytest.fixture
def told(small):
    return small(methods=METHODS, published=TABLE, network__links=links(1), training__rounds=6, **NEAR)


def test_published_rounds_cost_what_as_many_rounds_of_a_run_cost(told, tmp_path):
    run(told, out=tmp_path / "run", train=False)
    spent = RunResult(tmp_path / "run")
    for each in price(told).prices:
        (one,) = spent.results[each.published.method]
        share = each.published.rounds / 6
        assert each.seconds.nominal == pytest.approx(share * one.seconds)
        assert each.bytes == pytest.approx(share * (one.bytes.down + one.bytes.up))
        assert each.joules.nominal == pytest.approx(share * one.joules)
        assert each.flops == pytest.approx(share * one.flops)
        assert each.seconds.low < each.seconds.nominal < each.seconds.high


def test_the_break_even_is_that_of_runs_at_other_rates(told, small, tmp_path):
    """Bisection over runs without training, each with links of another rate."""
    prices = {(each.published.method, each.published.goal): each for each in price(told).prices}
    found = prices["fedmlb", "50 %"].pays

    def pays(factor):
        out = tmp_path / f"{factor:g}"
        there = small(methods=METHODS, network__links=links(factor), training__rounds=6, **NEAR)
        spent = RunResult(run(there, out=out, train=False))
        one, other = (spent.results[label][0].seconds for label in ("fedmlb", "fedavg"))
        return 30 * one < 40 * other

    slow, fast = 1e-2, 1e2
    assert pays(slow)
    assert not pays(fast)
    while fast > 1.01 * slow:
        middle = math.sqrt(slow * fast)
        slow, fast = (middle, fast) if pays(middle) else (slow, middle)
    assert found["nominal"].at == "below"
    usual = 16e4
    assert slow * usual <= found["nominal"].rate <= fast * usual
    assert found["high"].rate < found["nominal"].rate < found["low"].rate
    assert prices["fedprox", "50 %"].pays["nominal"] == Pays("no rate")
    assert prices["fedavg", "50 %"].pays is None
    assert prices["fedmlb", "60 %"].pays is None


def test_devices_form_fleets_of_their_own_and_accuracies_at_a_round_are_priced_too(small):
    known = [
        {"method": label, "metric": "accuracy", "value": value, "source": "a figure"}
        for label, value in (("fedprox", 0.5), ("fedavg", 0.4))
    ]
    given = {"cost": {"kind": "seconds", "methods": {"fedavg": "9 s", "fedprox": "9 s", "fedmlb": "9 s"}}}
    scenario = small(methods=METHODS, published=known, **given)
    assert [each.seconds_a_round > 9 for each in price(scenario).prices] == [True, True]
    found = price(scenario, on=["raspberry-pi-4", "jetson-nano"], methods=["fedprox", "fedavg"])
    assert [(each.fleet, each.published.method) for each in found.prices] == [
        (device, label) for device in ("raspberry-pi-4", "jetson-nano") for label in ("fedprox", "fedavg")
    ]
    assert {each.published.goal for each in found.prices} == {"round 4"}
    assert max(each.seconds_a_round for each in found.prices) < 9
    assert found.prices[1].ratio < 1
    with pytest.raises(UserError, match="published: expected numbers of rounds"):
        price(scenario, methods=["fedmlb"])


def test_the_command_prints_a_row_for_each_number_and_when_the_method_is_faster(small, tmp_path):
    small()
    changes = {"methods": METHODS[:2], "published": TABLE[:2] + TABLE[3:], "network.links": links(1)} | {
        "network.topology.latency": 0
    }
    given = [each for path, value in changes.items() for each in ("--set", f"{path}={json.dumps(value)}")]
    found = CliRunner().invoke(app, ["plan", str(tmp_path / "small.yaml"), "--published", *given])
    assert found.exit_code == 0, found.output
    assert [text in found.output for text in ("below", "> 50", "a table")] == [True] * 3
    refused = CliRunner().invoke(app, ["plan", str(tmp_path / "small.yaml"), "--on", "jetson-nano"])
    assert refused.exit_code != 0


@pytest.mark.full
def test_fedmlb_breaks_even_where_a_closed_form_says():
    """R_a (c_a + 2 B / r) = R_b (c_b + 2 B / r): on links without contention, with B bits each way."""
    fedavg, fedmlb = price(
        load_scenario("papers/fedmlb/table1_cifar100_100clients"), methods=["fedavg", "fedmlb"], rounds=2
    ).prices[:2]
    bits = 8 * fedavg.bytes / fedavg.published.rounds / 5  # of one client, both ways
    computing = [each.published.rounds * (each.seconds_a_round - bits / 160e6) for each in (fedavg, fedmlb)]
    rate = bits * (924 - 488) / (computing[1] - computing[0])
    assert fedmlb.pays["nominal"].rate == pytest.approx(rate, rel=1e-3)
