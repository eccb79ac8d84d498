"""The page in a real browser: it renders, asks for nothing, says nothing on the console, and its sliders answer."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgefl.report.page.sections import page
from edgefl.report.paired import compare_metric
from edgefl.report.quantities import quantity

from .chromium import PROGRAMS, Chromium, program
from .conftest import seed_result

pytestmark = pytest.mark.skipif(program() is None, reason=f"no browser on the PATH, none of {', '.join(PROGRAMS)}")

SHOWN = (
    "[...document.querySelectorAll('svg')].filter(each => each.checkVisibility() && each.getBoundingClientRect().width)"
    ".map(each => each.ariaLabel)"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def opened(browser, small_run, tmp_path):
    """The small run's page, just opened."""

    def open_at(**how):
        browser.errors.clear()
        browser.requests.clear()
        file = tmp_path / "page.html"
        file.write_text(page([small_run]), "utf-8")
        browser.open(file, **how)
        return browser

    return open_at


def move(browser, slider, value):
    browser.run(
        f"(() => {{ const slider = document.getElementById('budget-{slider}'); slider.value = {value};"
        "slider.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )
    return browser.run("document.getElementById('winner').textContent")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), pytest.param(390, "dark", marks=pytest.mark.full)])
def test_it_renders_without_a_word_on_the_console_or_a_request_and_fits_the_screen(opened, width, scheme):
    page = opened(width=width, scheme=scheme)
    assert page.run("document.documentElement.dataset.ready") == "yes"
    assert page.run(SHOWN)[:2] == ["accuracy over time", "Gantt chart of round 1 of 6: 398 ms, closed by client 4"]
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.errors == []
    assert [address for address in page.requests if not address.startswith("file:")] == []
    assert len(page.requests) == 1


def test_the_sliders_say_who_wins_within_the_budget(opened, small_run):
    page = opened()
    free = move(page, "seconds", 201)
    assert free.startswith("Without a limit, ")
    half = move(page, "seconds", 100)
    most = max(result.seconds for results in small_run.results.values() for result in results)
    assert half.replace("\u00a0", " ").startswith(f"Within {quantity(most / 2, 'seconds')}, ")
    assert half != free
    assert "no method has an evaluated model yet" in move(page, "bytes", 1)
    assert page.run("document.getElementById('budget-bytes').getAttribute('aria-valuetext')") != "no limit"


@pytest.mark.full
@pytest.mark.parametrize(("case", "spread"), [(0, 0.003), (2, 0.02)])
def test_the_sliders_separate_the_same_methods_as_the_table(browser, make_run, tmp_path, case, spread):
    random, found = np.random.default_rng(case), {}
    for label, centre in {"a": 0.70, "b": 0.73, "c": 0.75, "d": 0.76}.items():
        finals = (centre + random.normal(0, spread, 4)).tolist()
        found[label] = [seed_result(seed, accuracy__final=final) for seed, final in enumerate(finals)]
    run = make_run(found)
    for label, results in found.items():  # the only evaluation is the one of the summary
        for result in results:
            file = run.paths.of(label, result["seed"]).rounds
            table = pq.read_table(file)
            values = pa.array([None] * (len(table) - 1) + [result["accuracy"]["final"]], pa.float64())
            pq.write_table(table.set_column(table.column_names.index("accuracy"), "accuracy", values), file)
    (tmp_path / "page.html").write_text(page([run]), "utf-8")
    browser.open(tmp_path / "page.html")
    shown = [move(browser, slider, 201) for slider in ("seconds", "bytes", "joules")][-1].replace("\u00a0", " ")
    leaders = compare_metric(run).leaders
    assert ("no clear winner" in shown) == (len(leaders) > 1)
    assert [label for label in "abcd" if re.search(rf"\b{label}\b", shown.partition("not decided:")[2])] == sorted(
        leaders[1:]
    )


def test_runs_without_a_common_seed_have_no_verdict(browser, make_run, tmp_path):
    results = [seed_result(seed, accuracy__final=0.9 - seed / 100) for seed in range(6)]
    runs = [make_run({"a": results[first : first + 3]}, folder=f"from-{first}") for first in (0, 3)]
    (tmp_path / "page.html").write_text(page(runs), "utf-8")
    browser.open(tmp_path / "page.html")
    assert "no verdict: no seed of from-0: a is" in browser.run("document.getElementById('winner').textContent")


@pytest.mark.full
def test_a_switch_changes_what_accuracy_is_drawn_over(opened):
    page = opened()
    seen = []
    for over in ("time", "traffic", "energy", "computation", "rounds"):
        page.run(f"document.querySelector('input[name=over][value={over}]').click()")
        seen += page.run(SHOWN)[:1]
    assert seen == [f"accuracy over {over}" for over in ("time", "traffic", "energy", "computation", "rounds")]
    assert page.errors == []
