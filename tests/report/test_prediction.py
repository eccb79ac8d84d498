"""A run against its prediction: gaps in closed form, the order of the methods and decisions."""

import copy
import csv
import io
import json
import math
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from edgefl.cli.entry import main
from edgefl.experiment import run
from edgefl.record import RunPaths
from edgefl.record.emulation import Emulation, write_emulation
from edgefl.report import RunResult
from edgefl.report.prediction.comparing import compare_decisions, compare_runs
from edgefl.report.prediction.gaps import kendall, order_of
from edgefl.report.prediction.table import against_table
from edgefl.report.timeline.data import Computation, Round, Timeline, Transfer
from edgefl.report.timeline.usage import jobs_of
from edgefl.scenario.loading import check

from ..record.test_files import MEASURED
from ..small_runs import SMALL

METHODS = ["fedavg", {"method": "fedadc", "overlap": True}]


def scenario(capacity="8 Mbit/s", server="1 Gbit/s", **changes):
    """Clients with constant links of one capacity and no latency."""
    data = copy.deepcopy(SMALL) | {"methods": METHODS, "seeds": [0, 1]} | changes
    link = {"down": capacity, "up": capacity}
    data["network"] = {
        "topology": {"kind": "star", "server": {"down": server, "up": server}, "latency": 0},
        "links": {"5g": link},
        **changes.get("network", {}),
    }
    return data


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A prediction, and a measurement with half of the capacity."""
    folder = tmp_path_factory.mktemp("against")
    return tuple(
        run(check(scenario(capacity)), out=folder / name, train=False)
        for name, capacity in (("predicted", "8 Mbit/s"), ("measured", "4 Mbit/s"))
    )


@pytest.fixture
def copied(runs, tmp_path):
    predicted, measured = runs
    return predicted, shutil.copytree(measured, tmp_path / "measured")


def rows_of(measured, predicted):
    table = against_table(compare_runs(RunResult(measured), RunResult(predicted)))
    return {(record["method"], record["figure"]): record for record in table.records}


def test_half_the_capacity_doubles_transfers_and_leaves_training_as_it_is(runs):
    predicted, measured = runs
    rows = rows_of(measured, predicted)
    for method in ("fedavg", "fedadc"):
        for phase in ("download", "upload"):
            row = rows[method, phase]
            assert row["relative_gap"] == pytest.approx(1.0)
            assert row["measured"] == pytest.approx(2 * row["predicted"])
            assert row["compared"] == 2 * 4 * 3
        assert rows[method, "compute"]["gap"] == rows[method, "between phases"]["gap"] == 0.0
        results = RunResult(measured).results[method]
        for direction in ("down", "up"):
            row = rows[method, f"bytes {direction}"]
            assert row["gap"] == 0
            assert row["measured"] == sum(getattr(result.bytes, direction) for result in results) / 2


def test_the_gap_of_a_round_is_that_of_its_transfers(runs):
    """All clients have equal links, so a round lasts as long as transfers and the slowest training."""
    predicted, measured = runs
    row = rows_of(measured, predicted)["fedavg", "round"]
    bits = 8 * RunResult(predicted).results["fedavg"][0].bytes.up / (4 * 3)
    transfers = 2 * bits / 8e6
    assert row["gap"] == pytest.approx(transfers)
    assert row["measured"] == pytest.approx(row["predicted"] + transfers)
    total = rows_of(measured, predicted)["fedavg", "first 4 rounds"]
    assert total["gap"] == pytest.approx(4 * transfers)


def test_a_run_against_itself_has_no_gap(runs):
    predicted, _ = runs
    assert all(row["gap"] == 0 for row in rows_of(predicted, predicted).values())
    found = compare_runs(RunResult(predicted), RunResult(predicted))
    (order,) = found.orders()
    assert order.tau == order.clear_tau == 1.0
    assert against_table(found).data["largest"] == []


@pytest.mark.full
def test_every_format_has_the_comparison_and_the_picture_is_written(copied, capsys):
    predicted, measured = copied
    command = ["report", str(measured), "--against", str(predicted)]
    assert main(command) == 0
    shown = capsys.readouterr()
    out = " ".join(shown.out.split())
    assert "as predicted (Kendall's τ = 1.00, 1 pairs" in out
    assert "that run was not emulated" in out
    assert "network.links.5g.down" in shown.out
    assert f"{measured}/against.png: predicted over measured seconds" in shown.err
    assert (measured / "against.png").read_bytes().startswith(b"\x89PNG")
    for form in ("latex", "csv"):
        assert main([*command, "--details", "--format", form]) == 0
        out = capsys.readouterr().out
        assert "hidden download" in out
        if form == "csv":
            assert {row["figure"] for row in csv.DictReader(io.StringIO(out))} >= {"round", "upload", "bytes up"}
    assert main([*command, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    first = data["seeds"][0]
    assert [each["round"] for each in first["by_round"]] == [1, 2, 3, 4]
    for each in first["by_round"]:
        assert each["phases"]["upload"]["gap"] == pytest.approx(each["phases"]["upload"]["predicted"])
    assert data["largest"][0]["gap"] == max(each["gap"] for each in data["largest"])


@pytest.mark.full
def test_measured_seconds_bytes_and_the_load_are_named(copied, capsys):
    predicted, measured = copied
    for label in ("fedavg", "fedadc"):
        for seed in (0, 1):
            write_emulation(Emulation.model_validate(MEASURED), RunPaths(measured).of(label, seed).emulation)
    rows = rows_of(measured, predicted)
    counted = RunResult(measured).results["fedavg"][0].bytes
    for name in ("down", "up"):
        row = rows["fedavg", f"bytes {name}: counted, by interfaces"]
        assert (row["predicted"], row["measured"]) == (getattr(counted, name), MEASURED["wire_bytes"][name])
    assert main(["report", str(measured), "--against", str(predicted)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Processors used: 40 % at most" in out
    assert MEASURED["trust"][0] in out
    assert main(["report", str(measured), "--details"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "measured in an emulation, not computed (time dilation 4, paced computation, fifo queues)." in printed
    assert f"These seconds are doubtful: {MEASURED['trust'][0]}" in printed


@pytest.mark.full
def test_a_run_of_another_scenario_is_refused(runs, tmp_path, capsys):
    predicted, _ = runs
    other = run(check(scenario() | {"name": "other"}), out=tmp_path / "other", train=False, methods=["fedavg"])
    assert main(["report", str(predicted), "--against", str(other)]) == 2
    assert "expected a run of the scenario 'small', found one of 'other'" in capsys.readouterr().err
    assert main(["report", str(predicted), str(predicted), "--against", str(predicted)]) == 2
    assert "expected one run directory" in capsys.readouterr().err


@pytest.mark.full
def test_seconds_to_a_target_are_compared(tmp_path):
    """Both runs reach the target in the same round; its seconds are those of the round's end."""
    trained = [
        RunResult(run(check(scenario(capacity, methods=["fedavg"], targets=[0.1])), out=tmp_path / capacity[:1]))
        for capacity in ("8 Mbit/s", "4 Mbit/s")
    ]
    rows = rows_of(trained[1].path, trained[0].path)
    row = rows["fedavg", "to 10 %"]
    for run_of, figure in zip(trained, ("predicted", "measured"), strict=True):
        seconds = [result.targets[0].seconds for result in run_of.results["fedavg"]]
        assert row[figure] == pytest.approx(sum(seconds) / 2)
    assert row["gap"] > 0


def timeline(*rounds, **changes):
    """A timeline of rounds of ten seconds with these aggregated clients."""
    made = [
        Round(number, 10.0 * (number - 1), 10.0 * number, 0, 0, 0.0, 0.0, tuple(clients))
        for number, clients in enumerate(rounds, 1)
    ]
    return Timeline(rounds=made, **changes)


def test_rounds_are_compared_until_the_first_decision_that_differs():
    same = timeline([1, 2], [3, 4], [5, 6])
    assert compare_decisions(same, timeline([2, 1], [4, 3], [5, 6])) == ({}, 3, 3)
    late = compare_decisions(same, timeline([1, 2], [3], [5]))
    assert late.differences == {"aggregated clients": [2, 3]}
    assert (late.rounds, late.same) == (3, 1)
    shorter = compare_decisions(same, timeline([1, 2], [3, 4]))
    assert (shorter.differences, shorter.rounds, shorter.same) == ({}, 2, 2)
    one = timeline([1], [1], cohorts={1: [1], 2: [1]}, alphas={2: {1: 3}})
    other = timeline([1], [1], cohorts={1: [2], 2: [1]}, alphas={2: {1: 4}})
    found = compare_decisions(one, other)
    assert found.differences == {"cohort": [1], "blocks": [2]}
    assert found.same == 0


def transfer(item, flow, started, ended, *, client=0, dispatch=0, path=("server", "0"), **changes):
    figures = {"latency": 0.0, "bytes": 1000, "whole": True, "joules": 0.0, **changes}
    return Transfer(client, 1, dispatch, item, flow, path, started=started, ended=ended, **figures)


def test_phases_of_a_job_with_a_prefetch():
    """The job's round begins at 10 s: of the prefetch from 7 to 12 s, 3 s are hidden and 2 s are not."""
    made = Timeline(
        transfers=[
            transfer("prefetch", 0, 7.0, 12.0),
            transfer("down", 1, 11.0, 13.0),
            transfer("up", 2, 20.5, 24.0, path=("0", "server")),
        ],
        computations=[Computation(0, 1, 0, 4, 13.5, 20.0, 0.0, 0.0, whole=True)],
        rounds=[Round(1, 10.0, 30.0, 0, 0, 0.0, 0.0, (0,))],
    )
    (job,) = jobs_of(made, common_rounds=True).values()
    assert job.seconds == {
        "download": 3.0, "hidden download": 3.0, "compute": 6.5, "upload": 3.5, "between phases": 1.0, "wait": 6.0,
    }  # fmt: skip
    (alone,) = jobs_of(made, common_rounds=False).values()
    assert (alone.seconds["download"], alone.seconds["hidden download"]) == (2.0, 4.0)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=7))
def test_tau_is_kendalls(seconds):
    predicted, measured = ({str(n): float(each[place]) for n, each in enumerate(seconds)} for place in (0, 1))
    tau = order_of("", predicted, measured).tau
    expected = kendalltau(list(predicted.values()), list(measured.values())).statistic
    assert tau is None if math.isnan(expected) else tau == pytest.approx(expected)


def test_the_order_is_trusted_where_the_predicted_difference_exceeds_the_gap():
    order = order_of("", {"a": 10.0, "b": 11.0, "c": 20.0}, {"a": 12.5, "b": 12.0, "c": 21.0})
    clear = {(pair.first, pair.second): pair.clear for pair in order.pairs}
    assert clear == {("a", "b"): False, ("a", "c"): True, ("b", "c"): True}
    assert order.tau == pytest.approx(1 / 3)
    assert order.clear_tau == 1.0


def test_a_method_that_never_reaches_a_target_is_last():
    order = order_of("", {"a": 1.0, "b": math.inf, "c": math.inf}, {"a": 2.0, "b": math.inf, "c": 5.0})
    assert [(pair.predicted, pair.measured) for pair in order.pairs][:2] == [(math.inf, math.inf), (math.inf, 3.0)]
    assert order.pairs[2].predicted == 0.0
    assert kendall([]) is None
