"""What a block scheduler chose, from the log."""

import math
from collections import Counter

import pytest

from edgefl.record.figures import QUANTITIES, figure
from edgefl.record.tables import read_events
from edgefl.report.choices import Choice, choice_table, choices_figure, choices_of, distance_table, reading
from edgefl.report.comparison import details
from edgefl.report.page.sections import page

FEW = [Choice(2, 0, 1, 0.0, 1.05), Choice(2, 3, 2, 0.0, 1.05), Choice(4, 0, 1, -0.4, 0.6), Choice(4, 3, 2, 0.1, 0.6)]


def test_the_table_has_each_choice_of_the_log(small_run):
    found = choices_of(small_run, "fedbr")
    assert {each.round for each in found} == {2, 4, 6}
    for round in (2, 4, 6):
        own = [each for each in found if each.round == round]
        assert len(own) == 3
        played = {each.client: sum(e.client == each.client for e in found if e.round < round) for each in own}
        # Clients without an earlier choice have Eq. 24's bonus of an α that was never played; t counts from 0.
        assert all(each.bonus == math.sqrt(math.log(round)) for each in own if not played[each.client])
    table = choice_table(small_run, "fedbr", "fedbr")
    clients, times, rewards, bonuses, rounds = table.columns
    for row, client in enumerate(clients.cells):
        own = [each for each in found if each.client == int(client)]
        assert rounds.cells[row] == "".join(str(each.alpha) for each in own)
        counts = Counter(each.alpha for each in own)
        assert times.cells[row] == "/".join(str(counts[alpha]) for alpha in sorted({each.alpha for each in found}))
        assert rewards.values[row] == pytest.approx(sum(abs(each.reward) for each in own) / len(own))
        assert bonuses.values[row] == own[-1].bonus
    assert table.notes == [reading(found)]


def test_the_share_of_the_reward_is_a_figure(small_run):
    (result, _) = small_run.results["fedbr"]
    found = choices_of(small_run, "fedbr")
    share = sum(abs(each.reward) for each in found) / sum(each.bonus for each in found)
    assert figure(result, QUANTITIES["reward_over_bonus"]) == pytest.approx(share)
    assert "α by round" in details(small_run).text(80)


def test_the_distance_by_alpha_is_that_of_the_log_and_the_largest_is_a_figure(small_run):
    log = small_run.of("fedbr", 0).events
    alphas = {event.job: event.alpha for event in read_events(log, ["compute_start"])}
    found = [(alphas[event.job], event.facts["drift"]) for event in read_events(log, ["feedback"])]
    alpha, jobs, mean, largest = distance_table(small_run, "fedbr", "fedbr").columns
    assert alpha.cells == [str(each) for each in sorted({each for each, _ in found})]
    assert (sum(jobs.values), largest.values[-1]) == (len(found), 0.0)  # in rounds that send the whole model
    assert mean.values[0] == pytest.approx(sum(drift for each, drift in found if each == 1) / jobs.values[0])
    assert figure(small_run.results["fedbr"][0], QUANTITIES["start_distance"]) == max(largest.values) > 0
    assert distance_table(small_run, "fedavg", "fedavg") is None


def test_methods_without_a_choice_have_none(small_run):
    assert choices_of(small_run, "fedavg") == []
    assert choice_table(small_run, "fedavg", "fedavg") is None
    log = small_run.of("fedavg", 0).events
    assert not any("alphas" in event.facts for event in read_events(log, ["decision"]))


def test_the_page_has_a_picture_for_each_method_with_a_choice(small_run):
    written = page([small_run])
    assert written.count('aria-label="blocks of each client over rounds"') == 2  # a wide and a narrow one
    assert reading(choices_of(small_run, "fedbr")) in written


def test_the_picture_has_a_square_for_each_choice_and_a_line_for_bonus_and_reward():
    figure = choices_figure(FEW, (6, 4))
    blocks, sizes = figure.axes
    assert [len(patch.get_path().vertices) for patch in blocks.patches] == [10, 10]
    assert sizes.lines[0].get_ydata().tolist() == [1.05, 0.6]
    assert sizes.lines[1].get_ydata()[1] == pytest.approx(0.25)
    assert len(choices_figure([each._replace(bonus=None, reward=None) for each in FEW], (6, 4)).axes) == 1


def test_shares_are_given_where_clients_differ():
    assert reading(FEW) == (
        "α = 1 in 50 % and α = 2 in 50 % of all choices. The bonus went from 1.05 to 0.600; the mean reward was at most"
        " 0.400."
    )
