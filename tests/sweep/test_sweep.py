"""A sweep runs every setting once, goes on after a kill, and chooses without looking at the test images."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from edgefl.cli import main
from edgefl.cli.entry import app
from edgefl.errors import UserError
from edgefl.report.sweep_result import results_in
from edgefl.sweep import jobs as jobs_module
from edgefl.sweep.jobs import jobs_of, parse_grid, settings_of
from edgefl.sweep.searching import choose
from edgefl.sweep.sweeping import run_all, sweep

GRID = {"training.local.lr": [0.05, 0.1]}
CHANGES = ["training.rounds=2", "evaluation.split=validation"]
COMMAND = [sys.executable, "-c", "import sys; from edgefl.cli import main; sys.exit(main())"]


@pytest.fixture
def file(small, tmp_path):
    small()
    return str(tmp_path / "small.yaml")


def table_of(folder):
    return (folder / "sweep.parquet").read_bytes()


def in_this_process(jobs, folder, processes, done):
    for job in jobs:
        done(job, jobs_module.run_job(job, folder / job.id))


@pytest.fixture
def here(monkeypatch):
    """Runs jobs in the test's own process, which spares it the start of others."""
    monkeypatch.setattr("edgefl.sweep.sweeping.run_all", in_this_process)


def test_a_grid_is_read_as_yaml_lists():
    assert parse_grid(["a.b=1,2e-3,null", "m=[fedavg],[fedprox]", "c=[5 ms, 'it''s [a', {k: \"]\"}]"]) == {
        "a.b": [1, 2e-3, None],
        "m": [["fedavg"], ["fedprox"]],
        "c": ["5 ms", "it's [a", {"k": "]"}],
    }


@pytest.mark.parametrize("text", ["lr", "=1"])
def test_a_grid_of_another_form_is_refused(text, file):
    with pytest.raises(UserError):
        jobs_of(file, [], settings_of(parse_grid([text])))


@pytest.mark.parametrize(
    ("values", "mistake"),
    [
        ("[1, 2", r"'\[' is not closed; expected PATH=V1,V2 or PATH=\[V1, V2\]"),
        ("1, 2]", r"'\]' closes no bracket"),
        ("{kind: iid, {kind: shards}", r"'\{' is not closed"),
        ("[{kind: iid]}", r"'\{' is closed by '\]'"),
        ("(1, 2)", "round brackets make no list"),
        ("1,,2", "a comma has no value before it"),
        ("[]", "at least one value"),
    ],
)
def test_a_mistake_in_the_brackets_of_a_grid_is_named(values, mistake):
    with pytest.raises(UserError, match=mistake):
        parse_grid([f"lr={values}"])


def test_random_settings_are_the_same_every_time_and_part_of_the_grid():
    grid = {"a": list(range(10)), "b": list(range(10))}
    some = settings_of(grid, random=7)
    assert len(some) == 7
    assert some == settings_of(grid, random=7)
    assert all(setting in settings_of(grid) for setting in some)


def test_seeds_are_no_setting():
    with pytest.raises(UserError, match="seeds"):
        settings_of({"seeds": [[0], [1]]})


def test_a_setting_that_does_not_fit_is_refused_before_anything_runs(file):
    with pytest.raises(UserError, match="cohort"):
        jobs_of(file, [], [{"training.cohort": 99}])


def test_every_setting_method_and_seed_has_a_row_with_its_summarys_figures(file, tmp_path, here):
    jobs = jobs_of(file, [*CHANGES, "methods=[fedavg, fedprox]"], settings_of(GRID), seeds=[3], train=False)
    result = sweep(jobs, tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "sweep.parquet").to_pylist()
    found = [(row["training.local.lr"], row["method"], row["seed"]) for row in rows]
    assert found == [(lr, method, seed) for lr in (0.05, 0.1) for method in ("fedavg", "fedprox") for seed in (3,)]
    assert result.failures == {}
    for row in rows:
        summary = json.loads((tmp_path / "out" / "jobs" / row["job"] / "summary.json").read_text())
        (entry,) = summary["methods"][row["method"]]
        assert (row["seconds"], row["bytes_down"], row["joules"]) == (
            entry["seconds"],
            entry["bytes"]["down"],
            entry["joules"],
        )


def test_a_second_process_is_refused_and_a_finished_sweep_runs_nothing_again(file, tmp_path, here):
    jobs = jobs_of(file, CHANGES, settings_of(GRID), train=False)
    refused = []

    def again(*facts):
        with pytest.raises(UserError, match="another process is working in this folder"):
            sweep(jobs, tmp_path / "out")
        refused.append(facts)

    sweep(jobs, tmp_path / "out", done=again)
    assert len(refused) == 2
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"jobs", "sweep.json", "sweep.parquet"}

    before, told = table_of(tmp_path / "out"), []
    sweep(jobs, tmp_path / "out", done=lambda *facts: told.append(facts))
    assert (told, table_of(tmp_path / "out")) == ([], before)
    with pytest.raises(UserError, match="another sweep"):
        sweep(jobs_of(file, CHANGES, [{"training.local.lr": 0.3}], train=False), tmp_path / "out")


def test_one_failed_job_leaves_the_others_rows(file, tmp_path, here, monkeypatch):
    run = jobs_module.run

    def fails_once(scenario, **choices):
        if scenario.training.local.lr == 0.05:
            raise RuntimeError("broken")
        return run(scenario, **choices)

    monkeypatch.setattr(jobs_module, "run", fails_once)
    result = sweep(jobs_of(file, CHANGES, settings_of(GRID), train=False), tmp_path / "out")
    assert list(result.failures.values()) == ["RuntimeError: broken"]
    assert result.table.column("training.local.lr").to_pylist() == [0.1]


@pytest.mark.full
def test_a_sweep_killed_in_the_middle_and_started_again_yields_the_same_table(file, tmp_path):
    arguments = ["sweep", file, "--grid", "training.local.lr=0.05,0.1", "--seed", "0", "--jobs", "1"]
    arguments += [text for change in CHANGES for text in ("--set", change)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    killed = subprocess.Popen(
        [*COMMAND, *arguments, "--out", str(tmp_path / "killed")],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment, start_new_session=True,
    )  # fmt: skip
    assert killed.stderr is not None
    for line in killed.stderr:
        if "done; 1 left" in line:
            break
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not (tmp_path / "killed" / "sweep.parquet").exists()

    jobs = jobs_of(file, CHANGES, settings_of(GRID), seeds=[0])
    told = []
    again = sweep(jobs, tmp_path / "killed", processes=1, done=lambda job, failure, left: told.append(left))
    assert told == [0]
    assert again.failures == {}
    for job in jobs:
        in_this_process([job], tmp_path / "whole" / "jobs", 1, lambda job, failure: None)
    (tmp_path / "whole" / "sweep.json").write_text(json.dumps({"jobs": [job.id for job in jobs]}))
    sweep(jobs, tmp_path / "whole")
    assert table_of(tmp_path / "killed") == table_of(tmp_path / "whole")


@pytest.mark.release
def test_a_process_that_dies_fails_its_job(file, tmp_path, monkeypatch):
    jobs = jobs_of(file, CHANGES, [{"training.rounds": 2}], train=False)
    monkeypatch.setattr("edgefl.sweep.sweeping.run_job", lambda *_: os._exit(3))
    failures = {}
    run_all(jobs, tmp_path, 2, lambda job, failure: failures.update({job.id: failure}))
    assert set(failures) == {job.id for job in jobs}
    assert all("process died" in failure for failure in failures.values())


def test_a_stopped_sweep_says_how_to_continue_and_report_that_it_is_unfinished(file, tmp_path, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("edgefl.sweep.sweeping.run_all", stop)
    out = tmp_path / "out"
    assert main(["sweep", file, "--grid", "training.local.lr=0.1,0.2", "--no-train", "--out", str(out)]) == 130
    *_, fact, advice = capsys.readouterr().err.splitlines()
    assert (fact, advice) == ("stopped by SIGINT; finished work is kept", "to continue: run the same command again")
    assert main(["report", str(out)]) == 2
    assert "it is an unfinished sweep: run its command again" in capsys.readouterr().err


def test_few_settings_of_a_grid_without_end_are_drawn_at_once():
    grid = {f"training.local.{name}": list(range(2000)) for name in ("epochs", "batch", "steps")}
    drawn = settings_of(grid, random=50)
    assert drawn == settings_of(grid, random=50)
    assert len({tuple(setting.values()) for setting in drawn}) == 50
    assert all(0 <= value < 2000 for setting in drawn for value in setting.values())
    with pytest.raises(UserError, match="at most 100,000 settings, found 8,000,000,000"):
        settings_of(grid)


@pytest.mark.release
def test_a_script_without_a_main_guard_runs_once(file, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"open({str(tmp_path / 'runs')!r}, 'a').write('once ')\nfrom edgefl.cli import main\nmain()\n")
    command = [sys.executable, str(script), "sweep", file, "--grid", "training.local.lr=0.1", "--no-train"]
    subprocess.run([*command, "--out", str(tmp_path / "out")], check=True, capture_output=True, timeout=300)
    assert (tmp_path / "runs").read_text() == "once "
    assert len(pq.read_table(tmp_path / "out" / "sweep.parquet")) == 1


def test_the_best_setting_is_that_with_the_greatest_mean_over_the_seeds(file):
    lrs = [0.01, 0.1, 1.0]
    jobs = jobs_of(file, CHANGES, settings_of({"training.local.lr": lrs}), seeds=[0, 1])
    accuracy = dict(zip([job.id for job in jobs], [0.5, 0.5, 0.9, 0.2, 0.6, 0.55], strict=True))
    table = pa.table({"job": list(accuracy), "method": ["fedavg"] * 6, "accuracy_final": list(accuracy.values())})
    (chosen,) = choose(jobs, table, "accuracy")
    assert (chosen.setting, chosen.edge, chosen.seeds) == ({"training.local.lr": 1.0}, ("training.local.lr",), 2)
    assert chosen.value == pytest.approx(0.575)


def test_a_setting_that_some_seed_did_not_finish_is_not_chosen(file):
    jobs = jobs_of(file, CHANGES, settings_of(GRID), seeds=[0, 1])
    ids = [job.id for job in jobs][1:]
    table = pa.table({"job": ids, "method": ["fedavg"] * 3, "accuracy_final": [0.9, 0.3, 0.4]})
    (chosen,) = choose(jobs, table, "accuracy")
    assert chosen.setting == {"training.local.lr": 0.1}


def test_the_least_cost_is_chosen_of_the_settings_that_reach_the_last_target(file):
    jobs = jobs_of(file, CHANGES, settings_of({"training.local.lr": [0.01, 0.1, 1.0]}), seeds=[0])
    rows = {"job": [job.id for job in jobs], "method": ["fedavg"] * 3, "grams": [5.0, 30.0, 20.0]}
    (chosen,) = choose(jobs, pa.table(rows), "grams")
    assert (chosen.value, chosen.metric, chosen.dimension) == (5.0, "grams", "g")
    (chosen,) = choose(jobs, pa.table({**rows, "seconds_to_0.8": [None, 9.0, 8.0]}), "grams")
    assert (chosen.setting, chosen.value) == ({"training.local.lr": 1.0}, 20.0)


def test_nothing_is_chosen_by_the_test_images(file, tmp_path):
    command = ["sweep", file, "--grid", "training.local.lr=0.1,0.2", "--choose", "accuracy"]
    result = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, UserError)
    assert "evaluation.split=validation" in str(result.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.full
def test_a_report_on_a_sweep_takes_the_seeds_of_a_setting_together(file, tmp_path, here, capsys):
    out = tmp_path / "out"
    sweep(jobs_of(file, ["training.rounds=2", "methods=[fedavg, fedprox]"], settings_of(GRID), seeds=[0, 1]), out)
    table = pq.read_table(out / "sweep.parquet")
    found = results_in(out)
    assert [result.name for result in found] == ["lr=0.05", "lr=0.1"]
    for result, rate in zip(found, GRID["training.local.lr"], strict=True):
        assert result.seeds == [0, 1]
        for label in ("fedavg", "fedprox"):
            rows = [row for row in table.to_pylist() if (row["training.local.lr"], row["method"]) == (rate, label)]
            assert [each.accuracy.final for each in result.results[label]] == [row["accuracy_final"] for row in rows]
            vain = [(each.refused, each.rounds_without_update) for each in result.results[label]]
            assert vain == [(row["refused"], row["rounds_without_update"]) for row in rows]
            assert [len(result.rounds_of(label, seed)) for seed in (0, 1)] == [2, 2]
    assert len(results_in(out, together=False)) == 4
    assert main(["report", str(out)]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert printed[0] == "lr=0.05 → lr=0.1"
    shutil.copytree(out, tmp_path / "other")
    assert main(["report", str(out), str(tmp_path / "other"), "--format", "csv"]) == 0
    named = [line.split(",")[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert named[::2] == ["out: lr=0.05", "out: lr=0.1", "other: lr=0.05", "other: lr=0.1"]
    assert main(["report", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["setting"] for each in told["runs"]] == [{"training.local.lr": rate} for rate in (0.05, 0.1)]
    assert [each["path"] for each in told["runs"]] == [str(out)] * 2
    assert [row["seeds"] for row in told["rows"]] == [2, 2, 2, 2]
    assert main(["report", str(out), "--html", str(tmp_path / "page.html")]) == 0
    (out / "sweep.parquet").write_bytes(b"torn")
    assert main(["report", str(out)]) == 2
    assert "sweep.parquet" in capsys.readouterr().err


def test_a_wrong_name_in_a_grid_is_blamed_on_where_it_was_typed(file, tmp_path, capsys):
    assert main(["sweep", file, "--grid", "training.local.rl=0.1,0.2", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error == "error: --grid training.local.rl=0.1: training.local.rl: unknown key; did you mean 'lr'?\n"
    section = "sweep={grid: {training.local.rl: [0.1, 0.2]}}"
    assert main(["sweep", file, "--set", section, "--out", str(tmp_path / "out")]) == 2
    assert f"error: {file}: sweep: training.local.rl=0.1: training.local.rl: unknown key" in capsys.readouterr().err
