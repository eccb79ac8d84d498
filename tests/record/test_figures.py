"""Quantities: those of a user's file, and the totals at a round."""

import json
from pathlib import Path

import pytest

from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.planning.planning import plan
from edgefl.record.summary import read_summary
from edgefl.record.tables import read_events
from edgefl.report import RunResult, comparison
from edgefl.report.pictures import accuracy_figure
from edgefl.rerun.verify import verify

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
FILE = PAGE.partition("```python\n# carbon.py\n")[2].partition("```")[0]
FILE += """
LARGEST = Quantity("largest", "bytes", "the largest transfer", total="max",
                   source=lambda event: event.bytes if event.kind == "transfer_end" else 0.0)
"""


@pytest.fixture
def own(small, tmp_path):
    """A function that makes the small scenario with two quantities of a file."""
    (tmp_path / "mine.py").write_text(FILE, encoding="utf-8")
    entries = [{"python": f"{tmp_path}/mine.py:{name}"} for name in ("CO2", "LARGEST")]
    return lambda **changes: small(figures=entries, **changes)


def test_a_quantity_of_a_file_is_a_column_a_key_a_heading_an_axis_and_a_budget(own, tmp_path):
    folder = run(own(budgets={"co2_grams": 2e-4}, stop="budget"), out=tmp_path / "run")
    result = RunResult(folder)
    (entry,) = result.results["fedavg"]
    events = list(read_events(result.of("fedavg", 0).events))
    assert entry.stop.reason == "co2_grams"
    assert entry.co2_grams == pytest.approx(entry.joules / 9000)
    assert entry.largest == max(event.bytes for event in events if event.kind == "transfer_end")
    rows = result.rounds_of("fedavg", 0).to_pydict()
    assert rows["co2_grams"] == pytest.approx([joules / 9000 for joules in rows["joules"]])
    assert sum(rows["co2_grams"]) <= 2e-4 < entry.co2_grams
    assert result.moments["fedavg"][0].co2_grams == pytest.approx(sum(rows["co2_grams"]))
    shown = comparison(result, detailed=True)
    assert "CO2" in [column.head for column in shown.columns]
    assert shown.data["rows"][0]["co2_grams"]["mean"] == pytest.approx(sum(rows["co2_grams"]))
    (axes,) = accuracy_figure([result], ["co2_grams"]).axes
    assert axes.get_xlabel() == "co2_grams, g"
    assert read_summary(folder / "summary.json")[0]["figures"][0]["head"] == "CO2"
    assert verify(folder, trust=True) == []
    summary = json.loads((folder / "summary.json").read_text())
    summary["methods"]["fedavg"][0]["co2_grams"] *= 2
    (folder / "summary.json").write_text(json.dumps(summary))
    assert [text.partition(":")[2][:11] for text in verify(folder, trust=True)] == [" co2_grams:"]


@pytest.mark.full
def test_a_plan_says_how_far_a_budget_of_a_users_quantity_reaches(own):
    made = plan(own(budgets={"co2_grams": 2e-4}), rounds=4)
    (budget,) = made.methods[0].budgets
    assert (budget.kind, budget.rounds) == ("co2_grams", 2)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"budgets": {"co3": 1.0}}, "budgets.co3"),
        ({"budgets": {"largest": 1.0}}, "budgets.largest"),
        ({"figures": ["water"]}, "figures.0"),
        ({"figures": [{"python": "mine.py:Co2"}]}, "figures.0"),
    ],
)
def test_what_is_no_quantity_or_no_budget_is_refused_where_it_stands(own, small, changes, field):
    with pytest.raises(UserError) as raised:
        (small if "figures" in changes else own)(**changes)
    assert (raised.value.field or "").startswith(field)


def test_an_error_of_a_source_ends_the_run_of_its_method(own, tmp_path):
    (tmp_path / "mine.py").write_text(FILE.replace("/ 3.6e6", "/ 0"), encoding="utf-8")
    with pytest.raises(Exception, match="figure 'co2_grams': ZeroDivisionError"):
        run(own(), out=tmp_path / "run")
