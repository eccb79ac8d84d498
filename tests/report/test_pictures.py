"""The picture shows every method, target and budget, and is the same each time."""

import numpy as np
import pytest

from edgefl.cli.entry import main
from edgefl.errors import UserError
from edgefl.report import write_pictures
from edgefl.report.pictures import accuracy_figure

from .conftest import seed_result, target


def test_the_picture_is_a_png_beside_the_runs_files_and_the_same_each_time(three_methods):
    (path,) = write_pictures(three_methods)
    assert path == three_methods.path / "accuracy.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    first = path.read_bytes()
    write_pictures(three_methods)
    assert path.read_bytes() == first


def test_the_mean_line_passes_through_the_mean_of_the_seeds_and_stays_within_their_range(three_methods):
    line = next(line for line in three_methods.plot().axes[0].get_lines() if line.get_label() == "fedavg")
    tables = [three_methods.rounds_of("fedavg", seed) for seed in range(3)]
    seconds, percent = line.get_data()
    for position in (0, 57, 199):
        at = [np.interp(seconds[position], table["seconds"], np.asarray(table["accuracy"])) for table in tables]
        assert percent[position] == pytest.approx(100 * np.mean(at))
    # As far as every seed went, and no further.
    assert seconds[-1] == pytest.approx(min(table["seconds"][-1].as_py() for table in tables))


def test_bytes_count_both_directions(three_methods):
    line = next(line for line in three_methods.plot().axes[1].get_lines() if line.get_label() == "fedavg")
    assert line.get_xdata()[-1] == pytest.approx(410)  # MB: 200 down and 210 up


def test_the_axis_starts_below_every_curve_and_its_label_says_where(three_methods):
    axes = three_methods.plot().axes[0]
    start = axes.get_ylim()[0]
    lowest = min(table for table in three_methods.rounds["accuracy"].to_pylist() if table is not None)
    assert 100 * lowest - 10 < start <= 100 * lowest
    assert axes.get_ylabel() == "test accuracy, %" + (f" (axis starts at {start:g} %)" if start else "")


@pytest.mark.full
@pytest.mark.parametrize(("form", "sign"), [("pdf", b"/CIDFontType2"), ("svg", b">fedbr</text>")])
def test_a_figure_for_a_paper_has_the_chosen_methods_and_its_fonts_are_text(three_methods, tmp_path, form, sign):
    file = tmp_path / f"figure.{form}"
    command = ["report", str(three_methods.path), "--figure", str(file), "--x", "energy", "--method", "fedbr"]
    assert main(command) == 0
    found = file.read_bytes()
    assert main(command) == 0
    assert file.read_bytes() == found
    assert sign in found
    axes = three_methods.plot("energy", methods=["fedbr"]).axes
    assert [each.get_xlabel() for each in axes] == ["energy, kJ"]
    assert "fedavg" not in axes[0].get_legend_handles_labels()[1]
    with pytest.raises(UserError, match="no method 'fedad'"):
        three_methods.plot(methods=["fedad"])


@pytest.mark.full
def test_targets_and_budgets_are_marked(three_methods):
    for axes, budget in zip(three_methods.plot().axes, ("budget 60 s", "budget 500 MB"), strict=True):
        texts = [text.get_text() for text in axes.texts]
        assert {"target 80 %", "target 90 %", budget} <= set(texts)


def test_a_legend_and_a_target_below_the_axis_stay_in_the_picture(make_run):
    """The narrow picture is 3.7 inches wide; every accuracy of the run is above 60 %, and its target is 50 %."""
    labels = ["fedavg", "median", "trimmed_mean", "krum", "norm_bound"]
    result = seed_result(rounds=1, targets=[target(0.5, 1.0)])
    figure = accuracy_figure([make_run({label: [result] for label in labels})], ["time"], size=(3.7, 3.9))
    figure.canvas.draw()
    assert 0 < figure.legends[0].get_window_extent().x0 < figure.legends[0].get_window_extent().x1 < figure.bbox.x1
    assert [text.get_text() for text in figure.axes[0].texts] == ["target 50 % ↓"]
    assert figure.axes[0].texts[0].get_window_extent().y0 > figure.axes[0].bbox.y0


@pytest.mark.full
def test_a_budget_of_energy_is_a_cross_where_it_ran_out(make_run):
    budgets = [{"kind": "joules", "limit": 2200.0, "accuracy": 0.9}]  # 100 J a round: spent after 22 rounds of 10.25 MB
    run = make_run({"fedavg": [seed_result(seed, budgets=budgets) for seed in range(3)]})
    axes = run.plot().axes[1]
    (cross,) = [line for line in axes.get_lines() if line.get_marker() == "x" and len(line.get_xdata())]
    assert cross.get_xdata()[0] == pytest.approx(22 * 10.25)
    assert "2.2 kJ spent" in axes.get_legend_handles_labels()[1]


def test_without_training_there_is_no_picture_of_accuracy(make_run):
    untrained = {"final": None, "best": None, "ema": None}
    run = make_run({"fedavg": [seed_result(accuracy=untrained)]}, trained=False)
    assert write_pictures(run) == []
    assert not (run.path / "accuracy.png").exists()
    assert run.plot().axes  # empty, but no fault
