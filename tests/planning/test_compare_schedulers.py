"""The figures of a comparison are those of the runs that it stands for, and no round is shorter than its bound."""

import json
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from edgefl.cli.entry import app
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.planning.compare_schedulers import compare_schedulers
from edgefl.scenario import with_overrides
from edgefl.scheduling.selection.base import SELECTORS

CONSTANT = {"network__links": {"5g": {"down": "8 Mbit/s", "up": "4 Mbit/s"}}}


def test_its_figures_are_those_of_the_run_without_training(small, tmp_path):
    scenario = small()
    made = compare_schedulers(scenario, rounds=12, selections=["uniform", "tifl"])
    for name, figures in made.schedulers.items():
        other = with_overrides(scenario, {"training.rounds": 12, "training.selection": name})
        out = run(other, out=tmp_path / name, train=False) / "fedavg" / "seed-0"
        rows = pq.read_table(out / "rounds.parquet").to_pydict()
        events = pq.read_table(out / "events.parquet").to_pylist()
        cohorts = [json.loads(each["detail"])["clients"] for each in events if each["kind"] == "aggregation"]
        times = Counter(client for cohort in cohorts for client in cohort)
        assert figures.makespan == pytest.approx(rows["seconds"][-1] / 12)
        assert figures.joules == pytest.approx(sum(rows["joules"]) / 12)
        assert figures.jain == pytest.approx(times.total() ** 2 / (8 * sum(count**2 for count in times.values())))
        assert figures.clients_seen == len(times) / 8
        seen = [len({client for cohort in cohorts[:number] for client in cohort}) for number in range(13)]
        assert figures.rounds_to_cover == (seen.index(8) if 8 in seen else None)


@pytest.mark.full
def test_every_selector_is_compared_or_left_out_with_a_reason(small):
    made = compare_schedulers(small(), rounds=2)
    assert set(SELECTORS.names()) <= made.schedulers.keys() | made.left_out.keys()
    assert "training.selection.deadline" in made.left_out["deadline"]
    assert "protocol.deadline" in made.left_out["uniform, deadline_first"]
    assert made.schedulers["oort"].reads_losses
    assert not made.schedulers["uniform, least_makespan"].reads_losses


def test_of_single_clients_the_optimum_is_the_quickest(small):
    scenario = small(training__cohort=1, **CONSTANT)
    texts = [f"{{kind: fixed, clients: [{client}]}}" for client in range(8)]
    made = compare_schedulers(scenario, rounds=2, selections=texts).schedulers
    # Nothing changes between rounds, so each round of a client is equally long, unless its device is slowed down.
    least = min(each.makespan for each in made.values())
    for each in made.values():
        assert each.ratio_to_optimum == pytest.approx(each.makespan / least, rel=1e-6)
    assert max(each.ratio_to_optimum for each in made.values()) > 1.01


def test_if_all_clients_take_part_over_wide_servers_every_round_is_optimal(small):
    wide = {"kind": "star", "server": {"down": "9 Gbit/s", "up": "9 Gbit/s"}, "latency": "20 ms"}
    slow = {"compute": {"jitter": 0.5}}
    fleet = [{"profile": "raspberry-pi-4", "share": 1, "link": "5g", "overrides": slow}]
    scenario = small(training__cohort=8, network__topology=wide, fleet=fleet)
    made = compare_schedulers(scenario, rounds=6, selections=["uniform", "refl"])
    assert made.schedulers["uniform"].ratio_to_optimum == pytest.approx(1)
    assert made.sentence() == "Shortest rounds:  uniform and refl.   Most even:  uniform and refl."


@pytest.mark.parametrize("server", ["10 Mbit/s", pytest.param("100 Mbit/s", marks=pytest.mark.full)])
def test_no_round_is_shorter_than_its_bound(small, server):
    slow = {"compute": {"jitter": 0.3}}
    fleet = [{"profile": "raspberry-pi-4", "share": 1, "link": "5g", "overrides": slow}]
    star = {"kind": "star", "server": {"down": server, "up": server}, "latency": "5 ms"}
    scenario = small(fleet=fleet, network__topology=star)
    for name, each in compare_schedulers(scenario, rounds=1).schedulers.items():
        assert each.ratio_to_optimum >= 1 - 1e-9, name


def test_what_cannot_be_compared_is_refused(small):
    with pytest.raises(UserError, match="protocol with rounds"):
        compare_schedulers(small(protocol={"kind": "asynchronous"}), rounds=2)
    with pytest.raises(UserError, match=r"--selection tift: .*unknown selection 'tift'"):
        compare_schedulers(small(), rounds=2, selections=["tift"])
    with pytest.raises(UserError, match=r"--selection .*not YAML"):
        compare_schedulers(small(), rounds=2, selections=["{kind: ["])
    with pytest.raises(UserError, match=r"training\.rounds: expected 10000000 or less"):
        compare_schedulers(small(), rounds=10**20)


@pytest.mark.full
def test_the_command_prints_the_table_and_json(small, tmp_path):
    small()
    words = ["schedule", str(tmp_path / "small.yaml"), "--rounds", "3", "--selection", "uniform", "--selection", "oort"]
    printed = CliRunner().invoke(app, words)
    assert printed.exit_code == 0
    assert printed.output.startswith("Shortest rounds:  ")
    assert "All losses are 0 without training" in printed.output
    data = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    wanted = {"makespan", "joules", "jain", "rounds_to_cover", "ratio_to_optimum"}
    assert data["schedulers"].keys() == {"uniform", "oort"}
    assert all(wanted <= each.keys() for each in data["schedulers"].values())
    assert np.isfinite(data["schedulers"]["uniform"]["ratio_to_optimum"])
