"""The evaluation within a round, on clients and on the server, worked out by hand.

In this world a round takes 1 s down, 2 s of training and 1 s up; a forward pass on one image 1/30 s.
"""

import numpy as np
import pytest

from edgefl.report.timeline.data import timeline_of
from edgefl.report.timeline.usage import bottlenecks_of, breakdown_of
from edgefl.simulation.setup import RoundEvaluation

from .conftest import cells, device
from .test_power import changed

FORWARD = 1 / 30
ANSWER = 8 / 1e6
"""Seconds that the eight bytes of an answer take."""


def on_clients(images, share=1.0):
    return RoundEvaluation(share, np.array(images), on_server=0)


def test_clients_receive_the_model_and_evaluate_it_before_the_round_ends(run):
    result = run(rates=[8e6, 8e6, 4e6], cohort=2, rounds=2, selector={"kind": "fixed", "clients": [0, 1]},
                 evaluation=on_clients([10, 30, 15]))  # fmt: skip
    evaluation = 2 + 15 * FORWARD + 2 * ANSWER  # client 2 has half the rate, and is the last one
    assert result.outcome.rows[0].seconds == pytest.approx(4 + evaluation)
    assert result.outcome.seconds == pytest.approx(2 * (4 + evaluation))
    timeline = timeline_of(result.events)
    assert breakdown_of(timeline)[1] == pytest.approx((1, 2, 1, 0, 0, evaluation, 0, 0), abs=1e-9)
    assert bottlenecks_of(timeline)[1] == ("evaluation", "the evaluation on clients", pytest.approx(evaluation))
    spent = result.outcome.spent
    assert spent["evaluation_seconds"] == pytest.approx(2 * evaluation)
    assert spent["bytes_evaluated"] == 2 * 3 * (1e6 + 8)
    assert (spent["bytes_down"], spent["bytes_useful"]) == (2 * (2 + 3) * 1e6, 2 * 4e6)
    assert result.outcome.rows[0].amounts["bytes_evaluated"] == 3 * (1e6 + 8)
    assert spent["flops"] == pytest.approx(2 * (2 * 2e9 + 55 * 1e8 / 3))
    # 1 W idle and 2 W for the radio in transfers, 1 J/MB; 5 W in forward passes.
    training = 2 * (2 * (1 + 2 + 1) + 2 * 5)
    passes = 3 * (1 + 1 + 2) + 3 * 1.0 + 5 * 55 * FORWARD
    assert spent["joules"] == pytest.approx(2 * (training + passes), rel=1e-4)
    assert spent["exposed_seconds"] == pytest.approx(2 * 2)
    assert [job.dispatch for jobs in result.learner.aggregated for job in jobs] == [0, 0, 1, 1]


def test_a_share_of_the_available_clients_evaluates_every_second_round(run):
    result = run(rates=[8e6] * 4, rounds=4, evaluate_every=2, evaluation=on_clients([10] * 4, share=0.5))
    assert [len({event.client for event in result.of("forward", round=round + 1)}) for round in range(4)] == [
        0,
        2,
        0,
        2,
    ]
    assert [row.amounts["evaluation_seconds"] > 0 for row in result.outcome.rows] == [False, True, False, True]


def test_the_server_aggregates_and_evaluates_on_its_own_device(run):
    server = device(flops_per_second=2e9)
    result = run(rounds=1, server_device=server, evaluation=RoundEvaluation(0.0, np.array([1, 1]), on_server=25))
    mean = 2 * 1e6 / 2 / 2e9  # two updates of 250,000 numbers, a multiplication and an addition for each
    forward = 25 * FORWARD / 2
    assert result.outcome.seconds == pytest.approx(4 + mean + forward)
    stopped = run(rounds=1, server_device=server, budgets={"seconds": 4.2},
                  evaluation=RoundEvaluation(0.0, np.array([1, 1]), on_server=25))  # fmt: skip
    assert stopped.outcome.spent["server_seconds"] == pytest.approx(0.2)
    assert [event.item for event in result.of("server")] == ["aggregation", "evaluation"]
    assert result.of("server")[1].facts["joules"] == pytest.approx(5 * forward)
    assert result.outcome.spent["server_seconds"] == pytest.approx(mean + forward)
    (parts,) = breakdown_of(timeline_of(result.events))
    assert parts == pytest.approx((1, 2, 1, 0, mean + forward, 0, 0, 0), abs=1e-9)
    assert result.outcome.spent["joules"] == run(rounds=1).outcome.spent["joules"]


def test_a_budget_in_the_evaluation_ends_the_run_without_the_round(run):
    result = run(rounds=2, budgets={"seconds": 4.5}, evaluation=on_clients([10, 10]))
    assert (result.outcome.reason, result.outcome.rounds, result.outcome.seconds) == ("seconds", 0, 4.5)
    assert len(result.of("lost", item="unfinished")) == 2
    assert result.outcome.spent["evaluation_seconds"] == 0.5
    assert result.learner.aggregated == []


def test_a_client_that_crashes_is_not_waited_for(run):
    crash = {"kind": "crash", "client": 1, "at": 4.5}
    result = run(rates=[8e6, 1e6], cohort=1, selector={"kind": "fixed", "clients": [0]}, rounds=1, failures=[crash],
                 evaluation=on_clients([10, 10]))  # fmt: skip
    assert result.outcome.seconds == pytest.approx(4 + 1 + 10 * FORWARD + ANSWER)
    assert result.of("dropout")[0].item == "crash"


@pytest.mark.parametrize(("joules", "seconds"), [(10.0, 1.2), (14.0, 1.9)])
def test_a_battery_delivers_the_watts_of_computing_in_an_evaluation(run, joules, seconds):
    # The download takes 4 J; 5 W in the 1.9 s of the forward pass.
    result = run(devices=[device(), changed(device(), battery={"capacity": joules})], cohort=1, rounds=1,
                 selector={"kind": "fixed", "clients": [0]}, evaluation=on_clients([0, 57]))  # fmt: skip
    (forward,) = result.of("forward")
    assert (forward.seconds, forward.joules) == pytest.approx((seconds, 5 * seconds))
    assert [(event.item, event.time) for event in result.of("dropout")] == [("battery", pytest.approx(6.2))][
        joules > 10 :
    ]


def test_clients_without_the_memory_for_a_step_are_left_out_of_the_share(run):
    result = run(devices=[device(memory=1e6), device(), device()], rates=[8e6] * 3, cohort=1, rounds=1,
                 selector={"kind": "fixed", "clients": [1]}, evaluation=on_clients([10] * 3))  # fmt: skip
    assert {event.client for event in result.of("forward")} == {1, 2}
    assert result.outcome.spent["bytes_evaluated"] == 2 * (1e6 + 8)


def test_a_bandwidth_rule_foresees_the_evaluation_and_not_a_training(run):
    result = run(rounds=1, bandwidth="deadline_first", evaluation=on_clients([10, 30]))
    after = [event.facts["outlook"]["after"] for event in result.of("transfer_start", item="down")]
    assert after == pytest.approx([2 + 1, 2 + 1, 10 * FORWARD + ANSWER, 30 * FORWARD + ANSWER])


def test_a_cell_receives_the_model_once_and_forwards_it(run):
    result = run(topology=cells([8e6] * 4), rates=[8e6] * 4, rounds=1, protocol={"kind": "hierarchical"},
                 evaluation=on_clients([10] * 4), server_device=device(flops_per_second=2e9))  # fmt: skip
    (mean,) = result.of("server")
    assert mean.seconds == pytest.approx(2 * 1e6 / 2 / 2e9)  # of two cells' updates
    assert len([event for event in result.of("transfer_end", item="relay") if event.bytes == 1e6]) == 2 + 2 + 2
    assert result.outcome.seconds == pytest.approx(6 + mean.seconds + 1 + 1 + 10 * FORWARD + ANSWER)


def test_the_first_participation_of_a_client_starts_its_framework_once_and_after_a_crash_again(run):
    speed = device().core_speed
    crash = {"kind": "crash", "client": 1, "at": 9, "duration": 1}
    result = run(rounds=3, overhead={"start": speed, "first": 3 * speed}, failures=[crash])
    assert [row.seconds for row in result.outcome.rows] == pytest.approx([4 + 4, 8 + 4 + 1, 13 + 4 + 4])
