"""With one queue for all, the range over draws of the shares is computed, shown, and compared with a measured run."""

import copy
import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from edgefl.cli import main
from edgefl.experiment import run
from edgefl.network.transport import TransportSpec
from edgefl.report import RunResult
from edgefl.report.page.sections import page
from edgefl.report.prediction.gaps import Band
from edgefl.rerun.replay import write_sensitivity
from edgefl.scenario.loading import check

from ..small_runs import SMALL


def scenario(**changes):
    """The small scenario behind one queue, which limits."""
    data = copy.deepcopy(SMALL) | changes
    data["network"]["topology"]["server"] = {"down": "2 Mbit/s", "up": "2 Mbit/s"}
    data["network"]["transport"] = {"queue": "fifo"}
    return data


@pytest.fixture(scope="module")
def predicted(tmp_path_factory):
    folder = run(check(scenario()), out=tmp_path_factory.mktemp("fifo") / "predicted")
    write_sensitivity(folder)
    return folder


def ends(folder, draw=None):
    """The seconds at the end of each round, of a run or of one of its draws."""
    if draw is None:
        return pq.read_table(folder / "fedavg" / "seed-0" / "rounds.parquet")["seconds"].to_numpy()
    rows = pq.read_table(folder / "sensitivity.parquet").to_pylist()
    own = [row for row in rows if (row["devices"], row["bandwidth"], row["draw"]) == ("nominal", 1.0, draw)]
    return np.array([row["seconds"] for row in own])


def compared(measured, predicted, capsys):
    assert main(["report", str(measured), "--against", str(predicted), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.full
def test_each_draw_is_what_a_run_with_these_shares_would_have_been(predicted, tmp_path, monkeypatch):
    build = TransportSpec.build

    def drawn(self, seed=0):
        transport = build(self, seed)
        return replace(transport, queue=replace(transport.queue, draw=5))

    monkeypatch.setattr(TransportSpec, "build", drawn)
    other = run(check(scenario()), out=tmp_path / "other", train=False)
    assert ends(predicted, 5) == pytest.approx(ends(other), rel=1e-12)
    assert ends(predicted, 5) != pytest.approx(ends(predicted), rel=1e-3)
    assert ends(predicted, 0).tolist() == ends(predicted).tolist()


@pytest.mark.full
def test_the_band_of_a_round_is_from_the_lowest_to_the_highest_of_19_draws(predicted, capsys):
    found = compared(predicted, predicted, capsys)
    seconds = np.array([np.diff(ends(predicted, draw), prepend=0.0) for draw in range(19)])
    rounds = found["seeds"][0]["by_round"]
    assert [each["low"] for each in rounds] == pytest.approx(seconds.min(axis=0).tolist())
    assert [each["high"] for each in rounds] == pytest.approx(seconds.max(axis=0).tolist())
    assert all(each["inside"] and each["low"] < each["high"] for each in rounds)
    sentence = next(each["sentences"] for each in found["sentences"] if each["about"] == "one queue for all")
    assert sentence == [
        "fedavg: 4 of 4 rounds are within 1 % of the band of 19 draws of the shares; 9 of 10 are expected."
    ]


@pytest.mark.full
def test_the_prediction_of_rounds_and_targets_is_the_median_over_the_draws(predicted, capsys):
    found = compared(predicted, predicted, capsys)
    moments = np.array([ends(predicted, draw) for draw in range(19)])
    middles = np.median(np.diff(moments, prepend=0.0, axis=1), axis=0)
    assert [each["predicted"] for each in found["seeds"][0]["by_round"]] == pytest.approx(middles.tolist())
    assert [each["measured"] for each in found["seeds"][0]["by_round"]] == pytest.approx(
        np.diff(moments[0], prepend=0.0)
    )
    assert (middles != pytest.approx(np.diff(moments[0], prepend=0.0)), len(middles)) == (True, 4)
    rows = {row["figure"]: row for row in found["rows"]}
    assert rows["first 4 rounds"]["predicted"] == pytest.approx(np.median(moments[:, 3]))
    target = RunResult(predicted).results["fedavg"][0].targets[0]
    (row,) = [row for figure, row in rows.items() if figure.startswith("to ")]
    assert row["predicted"] == pytest.approx(np.median(moments[:, target.rounds - 1]))
    assert row["measured"] == target.seconds == moments[0, target.rounds - 1]
    assert any("the median over the draws" in note for note in found["notes"])


@pytest.mark.full
def test_rounds_of_a_slower_network_are_outside(predicted, tmp_path, capsys):
    data = scenario()
    data["network"]["topology"]["server"] = {"down": "1 Mbit/s", "up": "1 Mbit/s"}
    slow = run(check(data), out=tmp_path / "slow", train=False)
    found = compared(slow, predicted, capsys)
    assert not any(each["inside"] for each in found["seeds"][0]["by_round"])
    said = next(each["sentences"] for each in found["sentences"] if each["about"] == "one queue for all")[0]
    assert said.startswith("fedavg: 0 of 4 rounds are within 1 % of the band")
    assert "outside: round 1 (" in said


def test_a_band_has_a_tolerance_of_1_percent():
    band = Band(1.0, 2.0, 1.4)
    assert [band.contains(seconds) for seconds in (0.989, 0.991, 1.5, 2.019, 2.021)] == [False, True, True, True, False]


@pytest.mark.full
def test_the_page_says_in_how_many_draws_the_winner_leads(predicted, tmp_path):
    written = page([RunResult(predicted)])
    assert "With 19 draws of the shares in queues it leads in 19." in written
    fair = run(check(SMALL), out=tmp_path / "fair")
    write_sensitivity(fair)
    assert "draws of the shares" not in page([RunResult(fair)])
