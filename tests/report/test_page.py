"""The page holds what the run found, in one file; every text in it is escaped."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.report.glance import glance
from edgefl.report.html import _environment
from edgefl.report.page.sections import facts, page, sections, subtitle
from edgefl.report.page.series import Point, front, series_of
from edgefl.wording import escape


@pytest.fixture(scope="module")
def written(small_run):
    return page([small_run])


def data_of(written):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', written, re.DOTALL)[1])


class Elements(HTMLParser):
    """Every element with its attributes, and whether what is opened is closed."""

    def __init__(self, written):
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.feed(written)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "br", "img", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


def test_the_page_is_one_wellformed_file_that_names_nothing_outside(written):
    elements = Elements(written)
    assert elements.open == []
    assert not [tag for tag, _ in elements.found if tag in ("link", "img", "iframe", "object")]
    assert not [attrs for tag, attrs in elements.found if "src" in attrs]
    assert all(attrs["href"].startswith("#") for _, attrs in elements.found if "href" in attrs)
    assert len(written) < 2e6
    names = [attrs["id"] for _, attrs in elements.found if "id" in attrs]
    assert len(names) == len(set(names))
    assert {attrs["for"] for tag, attrs in elements.found if tag == "label" and "for" in attrs} <= set(names)


def test_the_fleet_names_what_confirms_the_seconds_of_each_device(written):
    rows = [re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", row) for row in re.findall(r"<tr>.*?</tr>", written, re.DOTALL)]
    confirmed = {row[0]: row[5] for row in rows if len(row) == 9}
    assert confirmed["device"] == "seconds of a step"
    assert confirmed["raspberry-pi-4"] == "fitted, ±79 %"
    assert confirmed["raspberry-pi-5"] == "derived, ±80 %"
    assert confirmed["jetson-nano"] == "derived, a factor of 2 to 3"


def test_the_sliders_count_with_what_was_spent_and_found(written, small_run):
    data = data_of(written)
    assert data["names"] == small_run.labels
    for seeds, label in zip(data["held"], small_run.labels, strict=True):
        for found, result in zip(seeds, small_run.results[label], strict=True):
            assert found["value"][-1] == pytest.approx(result.accuracy.final)
            assert found["bytes"][-1] == pytest.approx(result.bytes.down + result.bytes.up)
            assert found["joules"][-1] == pytest.approx(result.joules)
            assert all(later >= earlier for earlier, later in zip(found["seconds"], found["seconds"][1:], strict=False))


@pytest.mark.full
def test_the_bar_of_a_round_is_as_long_as_its_seconds_also_where_transfers_are_hidden(small_run):
    (rounds,) = [each.data for each in sections([small_run], series_of([small_run])) if each.name == "rounds"]
    seconds = {
        label: np.mean([each.seconds / each.rounds for each in results]) for label, results in small_run.results.items()
    }
    lengths = {label: sum(share for *_, share in parts) for label, _, parts in rounds["bars"]}
    longest = max(seconds.values())
    assert lengths == {label: pytest.approx(100 * each / longest) for label, each in seconds.items()}
    assert {label for label, hidden, _ in rounds["bars"] if hidden} == {"fedadc"}
    assert "of transfers before the round</small>" in page([small_run])


@pytest.mark.full
def test_several_runs_stand_on_one_page_with_their_names(small_run, late_run):
    data = data_of(page([small_run, late_run]))
    assert len(data["names"]) == 5
    assert data["names"][0] == "small: fedavg"
    assert data["held"][3][0]["value"] == []  # an untrained run has no accuracy to compare, and rounds are none


def test_without_training_rounds_take_the_place_of_accuracy(late_run):
    written = page([late_run])
    assert "<svg" not in written
    assert data_of(written)["held"][0][0]["value"] == [1, 2, 3, 4, 5, 6]


def test_sections_without_content_are_left_out(three_methods, written):
    def sections(text):
        return {
            attrs["id"] for tag, attrs in Elements(text).found if tag in ("section", "details") and attrs.get("id", "")
        }

    logged = {"rounds", "devices", "traffic"}
    assert logged <= sections(written)
    assert not logged & sections(page([three_methods]))
    assert not {"robustness", "fairness"} & sections(written)


def test_the_facts_are_the_words_and_figures_of_the_terminal(three_methods, small_run, late_run):
    table = glance(three_methods)
    (best, metric, cost) = facts([three_methods])
    cells = {column.head: column.cells for column in table.columns}
    assert table.title[-1].startswith(f"{best.head}:  {best.figure}  {metric.figure}")
    assert metric.words == f"{cells['behind'][1]} points ahead of {cells['method'][1]}"
    assert cost.figure == ", ".join(cells[head][0] for head in ("time", "traffic", "energy"))
    assert [fact.head for fact in facts([late_run])] == [
        "Least time a round",
        "Least traffic a round",
        "Least energy a round",
    ]
    assert subtitle([small_run, late_run])[0].startswith("2 runs · ")


@settings(max_examples=30)
@given(st.text())
def test_data_for_a_script_ends_no_element_and_comes_out_as_it_went_in(words):
    written = _environment().from_string("{{ data | tojson }}").render(data={"words": words})
    assert not re.search("[<>&\u2028\u2029]", written)
    assert json.loads(written) == {"words": escape(words, keep="\n\t")}


COSTS = st.integers(0, 12)


@settings(max_examples=30)
@given(st.lists(st.tuples(COSTS, COSTS, st.integers(0, 2)), max_size=25))
def test_the_front_holds_exactly_what_no_other_model_beats(found):
    points = [Point(cost, accuracy, series) for cost, accuracy, series in found]

    def beaten(one):
        return any(
            (other.cost <= one.cost and other.value > one.value) or (other.cost < one.cost and other.value >= one.value)
            for other in points
        )

    expected = {(point.cost, point.value) for point in points if not beaten(point)}
    assert {(point.cost, point.value) for point in front(points)} == expected
    assert len(front(points)) == len(expected)
