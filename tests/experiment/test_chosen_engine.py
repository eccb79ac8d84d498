"""The scenario says how training runs; a command may take another engine; what decides results is written down."""

from __future__ import annotations

import json

import pytest

from edgefl.errors import UserError
from edgefl.experiment import resume, run
from edgefl.experiment.pausing import Pause, Paused
from edgefl.learning.engine.core import TrainingCore
from edgefl.scenario import load_scenario

EXACT = {"kind": "auto", "precision": "float32", "convolutions": "grouped", "exact": True}


def engine_in(folder):
    return load_scenario(folder / "scenario.yaml").training.engine.model_dump()


def test_an_engines_name_alone_is_a_mapping_with_defaults(small):
    assert small(training__engine="parallel").training.engine.model_dump() == {**EXACT, "kind": "parallel"}
    assert small().training.engine.model_dump() == EXACT


def test_unknown_engines_and_precisions_are_refused_with_the_nearest_name(small):
    with pytest.raises(UserError, match=r"training\.engine.*unknown choice 'paralel'; did you mean 'parallel'"):
        small(training__engine="paralel")
    with pytest.raises(UserError, match=r"training\.engine\.precision: .*did you mean 'bfloat16'"):
        small(training__engine={"precision": "bfloat"})


def test_the_commands_engine_replaces_the_scenarios_and_is_written_down(small, tmp_path):
    scenario = small(training__rounds=1, training__engine={"kind": "parallel", "precision": "bfloat16"})
    assert engine_in(run(scenario, out=tmp_path / "own")) == {**EXACT, "kind": "parallel", "precision": "bfloat16"}
    other = run(scenario, out=tmp_path / "other", engine="sequential")
    assert engine_in(other) == {**EXACT, "kind": "sequential", "precision": "bfloat16"}
    assert (other / "summary.json").read_bytes() == (tmp_path / "own" / "summary.json").read_bytes()


def test_the_precision_decides_results_and_a_resumed_run_keeps_it(small, tmp_path):
    scenario = small(training__rounds=2, training__engine={"precision": "bfloat16"})
    whole = run(scenario, out=tmp_path / "whole")
    with pytest.raises(Paused):
        run(scenario, out=tmp_path / "left", pause=Pause(rounds=1))
    left = resume(tmp_path / "left")
    assert (left / "summary.json").read_bytes() == (whole / "summary.json").read_bytes()
    exact = run(small(training__rounds=2), out=tmp_path / "exact")
    finals = [(folder / "fedavg" / "seed-0" / "final.safetensors").read_bytes() for folder in (left, whole, exact)]
    assert finals[0] == finals[1] != finals[2]


def test_tf32_is_refused_where_training_runs_on_a_cpu_and_nothing_is_left_behind(small, tmp_path):
    with pytest.raises(UserError, match=r"training\.engine\.precision: tf32 is a precision of CUDA devices"):
        run(small(training__engine={"precision": "tf32"}), out=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_run_that_was_left_goes_on_with_the_engine_that_was_measured(small, tmp_path, monkeypatch):
    with pytest.raises(Paused):
        run(small(training__rounds=3, training__engine={"exact": False}), out=tmp_path / "run", pause=Pause(rounds=1))
    state = json.loads((tmp_path / "run" / "unfinished.json").read_text(encoding="utf-8"))
    assert state["fastest"]

    seen, made = [], TrainingCore.of

    def noting(*arguments, **options):
        seen.append(dict(options["fastest"]))
        return made(*arguments, **options)

    monkeypatch.setattr(TrainingCore, "of", noting)
    resume(tmp_path / "run")
    assert seen == [state["fastest"]]
    assert (tmp_path / "run" / "summary.json").exists()
