"""Work that ends early or together: partial work, TimelyFL, a common finish."""

import pytest

from edgefl.methods.parts.local_options import LocalOptions

from .conftest import BLOCK, device


def partial(deadline, **options):
    return {"deadline": deadline, "late": "partial", **options}


def test_who_would_be_late_takes_fewer_steps_and_arrives_in_time(run):
    result = run(rates=[8e6], rounds=1, protocol=partial(3.0))
    row = result.outcome.rows[0]
    assert (row.seconds, row.aggregated) == (pytest.approx(3.0), 1)
    assert [job.steps for job in result.learner.submitted] == [1]
    assert row.flops == pytest.approx(1e9)
    end = result.of("compute_partial")[0]
    assert (end.value, end.seconds, end.joules) == (1.0, 1.0, 5.0)


def test_who_is_in_time_works_as_ever(run):
    settings = {"rates": [8e6, 4e6], "rounds": 3}
    assert run(**settings, protocol=partial(7.0)).outcome.rows == run(**settings).outcome.rows


def test_who_could_not_take_one_step_gives_up_at_once(run):
    result = run(rates=[8e6, 8e6], rounds=1, protocol=partial(2.9))
    assert [job.steps for job in result.learner.submitted] == []
    assert (result.outcome.rows[0].seconds, result.outcome.rows[0].aggregated) == (pytest.approx(1.0), 0)
    assert result.outcome.spent["bytes_dropped"] == 2_000_000


@pytest.mark.parametrize(("left", "steps", "spent"), [(1.0, 1, 1.0), (1.3, 2, 1.3), (2.4, 3, 2.3), (0.7, 0, 0.0)])
def test_fewer_steps_cost_what_these_steps_cost(run, left, steps, spent):
    # Two passes over 13 images: steps of 10, 3, 10 and 3 images, which take 1, 0.3, 1 and 0.3 s.
    result = run(rates=[8e6], rounds=1, samples=13, protocol=partial(2 + left))
    assert [job.steps for job in result.learner.submitted] == [steps] * (steps > 0)
    ends = [(end.value, pytest.approx(end.seconds), pytest.approx(end.flops)) for end in result.of("compute_partial")]
    assert ends == [(steps, spent, spent * 1e9)] * (steps > 0)


def test_aborted_work_counts_the_steps_that_were_executed(run):
    result = run(rates=[8e6], rounds=1, samples=13, protocol={"deadline": 3.0})
    [drop] = result.of("compute_drop")
    # 2 of 2.6 s: a whole pass, and seven tenths of its next step.
    assert (drop.value, drop.seconds, drop.flops) == (pytest.approx(2.7), 2.0, pytest.approx(2e9))


def test_the_reserve_is_a_multiple_of_the_upload_alone(run):
    # Two uploads through the server's 8 Mbit/s take 2 s, twice what each foresees; so do the downloads.
    settings = {"rates": [8e6, 8e6], "server": 8e6, "rounds": 1}
    late = run(**settings, protocol=partial(5.0, reserve=1.0))
    assert late.outcome.rows[0].aggregated == 0
    assert late.outcome.spent["bytes_late"] > 0
    wary = run(**settings, protocol=partial(5.0, reserve=2.0))
    assert wary.outcome.rows[0].aggregated == 2
    assert [job.steps for job in wary.learner.submitted] == [1, 1]


def three():
    return [device(0.25e9), device(1e9), device(4e9)]


def timely(**options):
    return {"method": "timelyfl", "local": {"epochs": 1, "common_finish": {"drop_late": False, **options}}}


def test_epochs_and_blocks_follow_the_papers_equations(run):
    result = run(timely(), rates=[8e6] * 3, devices=three(), rounds=1)
    # T is the second of 6, 3 and 2.25 s; E = (1, 1, ⌊(3 - 2) / 0.25⌋) and α = (3/6, 1, 1), of four blocks.
    [decision] = result.of("decision", item="local work")
    assert decision.facts["seconds"] == 3.0
    assert decision.facts["steps"] == {"0": 1, "1": 1, "2": 4}
    assert decision.facts["blocks"] == {"0": 2, "1": 4, "2": 4}
    jobs = {job.id.client: (job.steps, job.alpha) for job in result.learner.submitted}
    assert jobs == {0: (1, 2), 1: (1, 4), 2: (4, 4)}


def test_the_whole_model_is_received_and_only_the_trained_blocks_are_returned(run):
    result = run(timely(), rates=[8e6] * 3, devices=three(), rounds=1)
    down = {event.client: event.bytes for event in result.of("transfer_end", item="down")}
    up = {event.client: event.bytes for event in result.of("transfer_end", item="up")}
    assert down == dict.fromkeys(range(3), 4 * BLOCK)
    assert up == {0: 2 * BLOCK, 1: 4 * BLOCK, 2: 4 * BLOCK}


@pytest.mark.parametrize("method", ["scaffold", "fedadc", "fedadc+"])
def test_a_finish_is_that_of_all_that_is_received_not_of_the_model_alone(run, method):
    local = {"epochs": 1, "common_finish": {"drop_late": True}}
    result = run({"method": method, "local": local}, rates=[8e6, 6e6, 4e6], devices=three(), rounds=6, cohort=2)
    assert [row.aggregated for row in result.outcome.rows] == [2] * 6


def test_the_round_closes_at_the_common_finish(run):
    result = run(timely(drop_late=True), rates=[8e6] * 3, devices=three(), rounds=1)
    assert result.outcome.rows[0].seconds == pytest.approx(3.0)
    assert [event.client for event in result.of("lost", item="late")] == [0]


def test_foreseen_gives_the_most_blocks_that_end_in_time(run):
    # Every step costs the same here, whatever is trained, so only the upload becomes shorter: 4 + 0.25 is too long.
    entry = {**timely(share=0.3), "blocks": "foreseen"}
    result = run(entry, rates=[8e6] * 3, devices=three(), rounds=1)
    assert result.of("decision", item="local work")[0].facts["blocks"] == {"0": 1, "1": 1, "2": 4}
    slower = run({**timely(), "blocks": "foreseen"}, rates=[8e6, 4e6, 8e6], devices=[device(1e9)] * 3, rounds=1)
    # T is 3 s; client 1 has 2 s left after its download, 1 s of it for its upload: half of the model.
    assert slower.of("decision", item="local work")[0].facts["blocks"] == {"0": 4, "1": 1, "2": 4}


def finishing(**options):
    return {"method": "fedavg", "local": {"common_finish": options}}


def pair():
    return [device(1e9), device(4e9)]


def test_a_fast_client_takes_as_many_steps_as_end_with_the_slow_one(run):
    result = run(finishing(), devices=pair(), rounds=1)
    assert [job.steps for job in sorted(result.learner.submitted, key=lambda job: job.id.client)] == [2, 8]
    row = result.outcome.rows[0]
    assert (row.seconds, row.flops) == (pytest.approx(4.0), pytest.approx(10e9))
    assert [event.time for event in result.of("compute_end")] == pytest.approx([3.0, 3.0])


def test_a_slow_client_takes_fewer_steps_to_end_with_the_fast_one_but_at_least_one(run):
    result = run(finishing(share=0.5), devices=pair(), rounds=1)
    assert {job.id.client: job.steps for job in result.learner.submitted} == {0: 1, 1: 2}
    assert result.outcome.rows[0].seconds == pytest.approx(3.0)


def test_the_decision_is_in_the_log_and_reads_predictions(run):
    [event] = run(finishing(), devices=pair(), rounds=1).of("decision", item="local work")
    assert event.facts == {"reads": ["foreseen"], "seconds": 4.0, "drop_late": False, "steps": {"0": 2, "1": 8}}


def test_whole_epochs_and_a_limit_bound_the_work(run):
    # An epoch is one step of a batch of 10.
    assert [job.steps for job in run(finishing(unit="epochs", most=3), devices=pair(), rounds=1).learner.submitted] in (
        [2, 3],
        [3, 2],
    )


def test_late_updates_are_discarded_at_the_common_finish_if_asked_for(run):
    result = run(finishing(share=0.5, drop_late=True), devices=pair(), rounds=2)
    assert [row.seconds for row in result.outcome.rows] == pytest.approx([2.5, 5.0])
    assert [row.aggregated for row in result.outcome.rows] == [1, 1]
    assert [event.client for event in result.of("lost", item="late")] == [0, 0]


def test_with_equal_clients_nothing_changes(run):
    settings = {"rates": [8e6, 8e6, 8e6], "rounds": 3}
    assert run(finishing(), **settings).outcome.rows == run("fedavg", **settings).outcome.rows


def mixed(**options):
    """Passes of steps of 1, 1 and 0.5 s on a device of 1 GFLOP/s."""
    return {"samples": 25, "local": LocalOptions(epochs=1, batch=10), **options}


def test_steps_are_planned_in_the_order_in_which_they_are_executed(run):
    # The slowest client takes 1 + 10 + 1 s; the others have 10.9 s: 10 s for 4 or 8 passes, then comes a whole batch.
    entry = {"method": "fedavg", "local": {"common_finish": {"drop_late": True}}}
    devices, rates = [device(0.25e9), device(1e9), device(2e9)], [8e6, 8e6 / 0.55, 8e6 / 0.55]
    result = run(entry, devices=devices, rates=rates, rounds=30, **mixed())
    assert {row.aggregated for row in result.outcome.rows} == {3}
    assert {job.id.client: job.steps for job in result.learner.submitted} == {0: 3, 1: 12, 2: 25}


def test_a_framework_s_seconds_are_in_the_plan(run):
    entry = {"method": "fedavg", "local": {"common_finish": {"drop_late": True}}}
    overhead = {"wait": 3.0, "start": 0.5, "per_megabyte": 0.25}
    result = run(entry, devices=pair(), rounds=5, overhead=overhead)
    assert [row.aggregated for row in result.outcome.rows] == [2] * 5
    partly = run(devices=pair(), rounds=5, overhead=overhead, protocol=partial(7.0))
    assert [row.aggregated for row in partly.outcome.rows] == [2] * 5


def test_partial_work_has_the_seconds_and_the_flops_of_its_own_steps(run):
    # Of 1 + 1 + 0.5 s two steps fit into 2 s, and take two seconds, not two thirds of 2.5 s.
    result = run(rates=[8e6], rounds=1, protocol=partial(4.0), **mixed())
    [end] = result.of("compute_partial")
    assert (end.value, end.seconds, end.flops) == (2.0, 2.0, 2e9)
    late = run(rates=[8e6], rounds=1, protocol=partial(3.9), **mixed())
    assert late.of("compute_partial")[0].value == 1.0


def test_heat_is_in_the_plan(run):
    # The slow device trains for 10 s; the other one takes two steps of 1 s, and then four of 2 s.
    hot = device(1e9).model_dump(mode="json", exclude_none=True)
    hot["compute"]["thermal"] = {"after": 2.0, "sustained": 0.5}
    hot = type(device()).model_validate({**hot, "name": "hot"})
    entry = {"method": "fedavg", "local": {"common_finish": {"drop_late": True}}}
    result = run(entry, devices=[device(0.2e9), hot], rounds=3)
    assert [row.aggregated for row in result.outcome.rows] == [2] * 3
    assert {job.id.client: job.steps for job in result.learner.submitted} == {0: 2, 1: 6}
