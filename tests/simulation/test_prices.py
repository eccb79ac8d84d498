"""Grams and euros of runs: charged by exact integrals of power, and budgets that end a run inside an activity."""

import json

import pytest

from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.record.summary import read_run
from edgefl.record.tables import read_events
from edgefl.rerun.verify import verify

from ..small_runs import SMALL


@pytest.fixture
def priced(small, tmp_path):
    """A function that runs one client that computes for 777 s, receives at 100 bit/s and sends at 80 bit/s."""
    hours = [f"2026-06-10 {hour:02}:00:00,{each}" for hour, each in enumerate((200, 300, 100, 250))]
    euros = [f"2026-06-10T{hour:02}:00Z,{each}" for hour, each in enumerate((0.2, 0.3, -0.4, 0.25))]
    files = {"carbon": ["Datetime (UTC),gCO₂eq/kWh (direct)", *hours], "energy": ["from,€/kWh", *euros]}
    for name, rows in files.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")

    def ended(idle=100.0, compute=100.0, active=0.0, megabyte=0.0, **changes):
        way = {"active": active, "energy_per_megabyte": megabyte}
        radio = {"down": way, "up": way, "promotion": 0, "tail": None}
        power = {"idle": idle, "compute": compute, "radio": radio}
        given = {
            "data": {**SMALL["data"], "clients": 1, "partition": {"kind": "iid"}},
            "training": {**SMALL["training"], "cohort": 1, "rounds": 10_000},
            "fleet": [{"profile": "laptop-8-core", "count": 1, "link": "slow", "overrides": {"power": power}}],
            "network__links": {"slow": {"down": "100 bit/s", "up": "80 bit/s"}},
            "cost": {"kind": "seconds", "methods": {"fedavg": {"low": 777, "high": 777}}},
            "start": "2026-06-10T00:00:00Z",
            "prices": {"carbon": f"{tmp_path}/carbon.csv", "energy": {"file": f"{tmp_path}/energy.csv", "column": "€"}},
            "targets": [],
            "stop": "budget",
        }
        folder = run(small(**given | changes), out=tmp_path / "run", train=False)
        return read_run(folder)[1].methods["fedavg"][0], folder

    return ended


def test_a_constant_power_costs_what_its_hours_cost(priced):
    entry, folder = priced(budgets={"seconds": 10800})
    assert (entry.grams, entry.euros) == (pytest.approx(60.0, rel=1e-9), pytest.approx(0.01, rel=1e-9))
    for name, amount in (("grams", entry.grams), ("euros", entry.euros)):
        for part in entry.breakdown[name].values():
            assert sum(part.values()) == pytest.approx(amount, rel=1e-9)
    assert entry.breakdown["grams"]["by_phase"].keys() == {"idle", "compute"}
    assert verify(folder) == []


@pytest.mark.parametrize(
    ("budget", "seconds"), [({"grams": "30 g"}, 4800), ({"euros": "3 ct"}, 4800), ({"euros": 0.04}, 6000)]
)
def test_a_budget_ends_a_run_at_the_passage(budget, seconds, priced):
    """After 2 h the price is negative, and in the end less than 4 ct are spent."""
    entry, _ = priced(budgets={**budget, "seconds": 10800})
    assert (entry.stop.reason, entry.seconds) == (next(iter(budget)), pytest.approx(seconds, rel=1e-9))


def test_energy_by_bytes_is_charged_at_the_price_when_they_arrive(priced):
    entry, folder = priced(10.0, 100.0, 5.0, "60 MJ", budgets={"seconds": 10800})
    expected, starts = 0.0, {}
    for event in read_events(next(folder.rglob("events.parquet"))):
        if event.kind == "transfer_start":
            starts[event.flow] = event.time + event.value  # from the first byte on, at one rate
        spans = [(event.time - event.seconds, event.joules)]
        if event.kind in ("transfer_end", "transfer_drop"):
            spans = [(event.time - event.seconds, 5.0 * event.seconds), (starts[event.flow], 60.0 * event.bytes)]
        for begin, joules in spans if event.client >= 0 and event.kind != "work" else ():
            for hour, grams in enumerate((200, 300, 100)):
                within = min(event.time, 3600 * hour + 3600) - max(begin, 3600 * hour)
                expected += joules * grams / 3.6e6 * max(0.0, within) / (event.time - begin or 1.0)
    assert entry.grams == pytest.approx(expected, rel=1e-9)


def test_traffic_and_the_servers_prices(priced):
    server = {"carbon": 100, "traffic": {"up": "2 €/GB"}}
    traffic = {"slow": {"down": "0.9 €/GB", "up": "1.2 €/GB"}}
    entry, _ = priced(prices={"traffic": traffic, "server": server}, start=None, budgets={"seconds": 10800})
    down, up = entry.bytes.down / 1e9, entry.bytes.up / 1e9
    assert (entry.euros, entry.server_euros) == pytest.approx((0.9 * down + 1.2 * up, 2 * down), rel=1e-9)
    assert entry.server_grams == 0  # its device has no seconds
    assert "grams" not in entry.written()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"start": None}, "prices.carbon"),
        ({"prices": None, "budgets": {"grams": 1}}, "budgets.grams"),
        ({"start": "2026-06-10T00:00"}, "start"),
    ],
)
def test_prices_need_a_start_and_budgets_need_prices(changes, field, priced):
    with pytest.raises(UserError) as raised:
        priced(**changes)
    assert raised.value.field == field


def test_the_hours_of_a_day(small, tmp_path, capsys):
    rows = [f"2026-06-10 {hour:02}:00:00,{100 + 10 * abs(hour - 2)}" for hour in range(24)]
    (tmp_path / "day.csv").write_text("\n".join(["Datetime (UTC),gCO₂eq/kWh (direct)", *rows]), encoding="utf-8")
    scenario = small(
        start="2026-06-10T02:00:00+02:00", prices={"carbon": f"{tmp_path}/day.csv", "traffic": 5}, seeds=[0, 1]
    )
    folder = run(scenario, out=tmp_path / "run")
    assert main(["replay", str(folder), "--start", "0h..4h", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    carbon = [row["grams"] for row in rows]
    assert carbon == pytest.approx([carbon[2] * (1 + 0.1 * abs(hour - 2)) for hour in range(4)], rel=1e-9)
    assert carbon[0] == pytest.approx(sum(e.joules for e in read_run(folder)[1].methods["fedavg"]) / 2 * 120 / 3.6e6)
    assert main(["plan", str(folder / "scenario.yaml"), "--start", "0h..4h"]) == 0
    assert "CO2: best at 2026-06-10 04:00" in capsys.readouterr().out
