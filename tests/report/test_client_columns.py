"""Accuracies beside the main one: columns where they were measured, none where they were not."""

from __future__ import annotations

import pytest

from edgefl.report import as_markdown, comparison_rows
from edgefl.report.comparison import comparison

from .conftest import seed_result


def personal(seed, gain):
    shared = {"mean": 0.5, "cumulative": 0.52, "worst_tenth": 0.2}
    fitted = {"kind": "calibration", **{name: value + gain for name, value in shared.items()}}
    return seed_result(seed, clients=shared, personalisation=fitted, ensemble={"final": 0.93, "best": 0.94})


def test_clients_accuracies_are_means_over_the_seeds(make_run):
    run = make_run({"fedavg": [personal(0, 0.1), personal(1, 0.2)]})
    (row,) = comparison_rows(run)
    assert row["clients.mean"].mean == pytest.approx(0.5)
    assert row["personalisation.mean"].mean == pytest.approx(0.65)
    assert row["personalisation.worst_tenth"].mean == pytest.approx(0.35)
    (told,) = comparison(run).data["rows"]
    # As summary.json calls them.
    assert told["personalisation"]["worst_tenth"]["mean"] == pytest.approx(0.35)
    assert told["clients"]["cumulative"]["mean"] == pytest.approx(0.52)
    assert told["ensemble"]["final"]["mean"] == pytest.approx(0.93)
    header, _, line, *_ = as_markdown([row]).splitlines()
    cells = dict(zip(header.split(" | "), line.split(" | "), strict=True))
    assert cells["clients mean, %"] == "50.0 ±0.0" or cells["clients mean, %"] == "50.0"
    assert cells["ensemble final, %"].startswith("93.0")


def test_without_them_there_is_no_column(three_methods):
    text = as_markdown(comparison_rows(three_methods))
    assert "clients" not in text
    assert "ensemble" not in text
