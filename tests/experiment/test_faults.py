"""What goes wrong beside a scenario: broken parts, full disks, damaged files. Nothing that was finished is lost."""

from __future__ import annotations

import errno
import importlib
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.experiment import NotWritten, RunsFailed, is_interrupted, resume, run
from edgefl.experiment import checkpoints as checkpoints_module
from edgefl.methods.objectives.fedprox import FedProx
from edgefl.record.names import STATE
from edgefl.report import RunResult, verdict
from edgefl.rerun.verify import verify
from edgefl.scenario.writing import dump_yaml

from ..small_runs import CELLS, SMALL, Stop, tree


def broken_after(monkeypatch, steps: int) -> None:
    """FedProx's loss works for so many steps."""
    calls = []
    loss = FedProx.loss

    def raising(self, *arguments):
        calls.append(0)
        if len(calls) > steps:
            raise ZeroDivisionError("mu wanted\na divisor")
        return loss(self, *arguments)

    monkeypatch.setattr(FedProx, "loss", raising)
    # It counts, so it is no value, and its operators may not be noted and called without it.
    monkeypatch.setattr(FedProx, "side_by_side", False)


METHODS = ["fedavg", "fedprox", "fednova"]


def test_a_method_that_raises_is_named_and_the_others_go_on(small, tmp_path, monkeypatch):
    expected = run(small(methods=["fedavg", "fednova"]), out=tmp_path / "without")
    broken_after(monkeypatch, 25)
    folder = tmp_path / "run"
    with pytest.raises(RunsFailed) as told:
        run(small(methods=METHODS, training__rounds=4), out=folder)
    message = str(told.value)
    for part in ("1 of 3 runs", "method 'fedprox', client ", "round ", "local step ", "ZeroDivisionError"):
        assert part in message
    assert isinstance(told.value.__cause__.__cause__, ZeroDivisionError)
    assert not is_interrupted(folder)
    entry = json.loads((folder / "summary.json").read_text())["methods"]["fedprox"][0]
    assert entry["stop"]["reason"] == "fault"
    assert entry["stop"]["message"] in message
    assert 1 <= entry["rounds"] < 4
    for label in ("fedavg", "fednova"):
        assert tree(folder / label) == tree(expected / label)
    assert verify(folder) == []
    assert RunResult(folder).rounds_of("fedprox", 0).num_rows == entry["rounds"]


def test_a_step_that_cannot_be_counted_without_data_ends_its_method_alone(small, tmp_path, monkeypatch):
    loss = FedProx.loss

    def counting(self, local, batch, context):
        found = loss(self, local, batch, context)
        return found._replace(total=found.total * len(batch.labels.unique()))

    monkeypatch.setattr(FedProx, "loss", counting)
    expected = "fedprox, seed 0: method 'fedprox', round 1, measuring a local step: its loss or local rule calls unique"
    with pytest.raises(RunsFailed, match=f"1 of 2 runs ended by a fault: {expected}"):
        run(small(methods=["fedprox", "fedavg"]), out=tmp_path / "run")
    assert RunResult(tmp_path / "run").results["fedavg"][0].rounds > 0


def test_a_fault_that_several_methods_share_is_stated_once(small, tmp_path, monkeypatch, capsys):
    def broken(*arguments, **options):
        raise KeyError("no such client")

    small()
    monkeypatch.setattr("edgefl.scheduling.selection.uniform.UniformSelector.pick", broken)
    changes, folder = ["--set", "methods=[fedavg, fedprox, fednova]"], tmp_path / "run"
    assert main(["simulate", str(tmp_path / "small.yaml"), "--out", str(folder), *changes]) == 1
    shown = capsys.readouterr()
    assert (shown.out + shown.err).count("no such client") == 1
    assert "fedavg, seed 0; fedprox, seed 0; fednova, seed 0: round 1, selection: KeyError" in shown.err
    ended = "fedavg, fedprox and fednova ended by a fault: round 1, selection: KeyError"
    assert verdict(RunResult(folder)).startswith(
        f"No method completed a round, so there is nothing to compare.\n{ended}"
    )


def test_a_run_that_ended_by_a_fault_is_tried_again_once_the_part_is_mended(small, tmp_path, monkeypatch):
    scenario = small(methods=METHODS, training__rounds=4)
    expected = run(scenario, out=tmp_path / "sound")
    folder = tmp_path / "run"
    with monkeypatch.context() as broken:
        broken_after(broken, 25)
        with pytest.raises(
            RunsFailed, match=f"once the code is fixed, edgefl simulate --resume {folder} tries again; a"
        ):
            run(scenario, out=folder)
        first = tree(folder)
        with pytest.raises(RunsFailed, match="1 of 3 runs"):  # it is not mended yet: the same end again
            resume(folder)
    assert tree(folder).keys() == first.keys()
    seconds = (folder / "fedavg/seed-0/events.parquet").stat().st_mtime_ns
    assert tree(resume(folder)) == tree(expected)
    assert (folder / "fedavg/seed-0/events.parquet").stat().st_mtime_ns == seconds, "what was sound is kept"
    with pytest.raises(UserError, match="nothing to resume: its run is finished"):
        resume(folder)


def test_trying_again_can_be_interrupted_and_goes_on(small, tmp_path, monkeypatch):
    scenario = small(methods=["fedprox"], training__rounds=13)
    expected = run(scenario, out=tmp_path / "sound")
    folder = tmp_path / "run"
    with monkeypatch.context() as broken:
        broken_after(broken, 25)
        with pytest.raises(RunsFailed):
            run(scenario, out=folder)
    with pytest.raises(KeyboardInterrupt):
        resume(folder, listeners=[Stop(11)])
    assert is_interrupted(folder)
    assert not (folder / "summary.json").exists()
    assert tree(resume(folder)) == tree(expected)


def test_a_regression_that_diverges_at_once_says_so_instead_of_a_tie(small, tmp_path, capsys):
    scenario = small(
        task="regression", data={"name": "scikit_learn", "table": "diabetes", "clients": 8},
        model={"name": "mlp", "widths": [8]}, targets=[], methods=METHODS, **{"training.local.lr": 1e30},
    )  # fmt: skip
    (tmp_path / "wild.yaml").write_text(dump_yaml(scenario.model_dump(mode="json")), encoding="utf-8")
    assert main(["simulate", str(tmp_path / "wild.yaml"), "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr()
    assert "tied" not in shown.out
    assert shown.out.count("scale the targets to a deviation of about 1, or lower training.local.lr") == 1
    assert verify(tmp_path / "run") == []


def test_a_run_that_diverged_is_finished(small, tmp_path):
    wild = {"method": "fedprox", "as": "wild", "local": {"lr": 1e9}}
    folder = run(small(methods=["fedavg", wild]), out=tmp_path / "run")
    with pytest.raises(UserError, match="nothing to resume: its run is finished"):
        resume(folder)


def test_a_method_that_raises_at_once_leaves_a_run_of_no_rounds(small, tmp_path, monkeypatch):
    broken_after(monkeypatch, 0)
    with pytest.raises(RunsFailed, match="round 1"):
        run(small(methods=METHODS), out=tmp_path / "run")
    assert verify(tmp_path / "run") == []
    assert RunResult(tmp_path / "run").results["fedprox"][0].rounds == 0


@pytest.mark.parametrize(
    ("place", "part"),
    [
        ("edgefl.scheduling.selection.uniform.UniformSelector.pick", "selection"),
        ("edgefl.scheduling.blocks.random.RandomScheduler.choose", "block scheduler"),
        ("edgefl.methods.servers.mean.Mean.update", "server update Mean"),
    ],
)
def test_a_selector_a_scheduler_and_a_server_that_raise_are_named(small, tmp_path, monkeypatch, place, part):
    def broken(*arguments, **options):
        raise KeyError("lost")

    monkeypatch.setattr(place, broken)
    with pytest.raises(RunsFailed, match=f"fedbr, seed 0: method 'fedbr', round ., {part}: KeyError: 'lost'"):
        run(small(methods=[{"method": "fedbr", "scheduler": "random"}]), out=tmp_path / "run")
    assert verify(tmp_path / "run") == []


def test_the_command_prints_the_result_then_the_fault_and_ends_with_1(small, tmp_path, monkeypatch, capsys):
    broken_after(monkeypatch, 25)
    small(methods=METHODS)
    arguments = ["simulate", str(tmp_path / "small.yaml"), "--out", str(tmp_path / "run")]
    assert main([*arguments, "--set", f"methods=[{', '.join(METHODS)}]"]) == 1
    output = capsys.readouterr()
    assert "fednova" in output.out
    assert "fault: RunsFailed: 1 of 3 runs ended by a fault: fedprox, seed 0: method 'fedprox', client" in output.err
    assert "Traceback" not in output.err


@pytest.mark.parametrize("protocol", ["synchronous", "asynchronous", "hierarchical"])
def test_an_error_outside_the_parts_of_a_method_is_a_fault_and_not_a_stall(
    small, tmp_path, monkeypatch, capsys, protocol
):
    topology = {"network__topology": CELLS} if protocol == "hierarchical" else {}
    small(protocol={"kind": protocol}, **topology)

    def broken(self, flow):
        raise RuntimeError("no such flow")

    arguments = [str(tmp_path / "small.yaml"), "--out", str(tmp_path / "run")]
    with monkeypatch.context() as fault:
        fault.setattr("edgefl.simulation.traffic.Traffic.flow_ended", broken)
        assert main(["simulate", *arguments]) == 1
    told = capsys.readouterr().err
    assert "fault: RuntimeError: no such flow; method 'fedavg', seed 0, round 1, " in told
    assert "stall" not in told
    assert main(["simulate", "--resume", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["methods"]["fedavg"][0]["stop"]["reason"] == "rounds"


def full(*arguments, **options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("edgefl.experiment.checkpoint_writer", "write_checkpoint"),
        ("edgefl.experiment.one_run", "write_rounds"),
        ("edgefl.experiment.all_runs", "write_summary"),
        ("pyarrow", "write_table"),
    ],
)
def test_a_full_disk_loses_nothing(small, tmp_path, monkeypatch, place, name):
    scenario = small(methods=["fedavg", "scaffold"], training__rounds=11)
    expected = run(scenario, out=tmp_path / "expected")
    with monkeypatch.context() as disk:
        # The package has a function of its module's name.
        holder = pq.ParquetWriter if place == "pyarrow" else importlib.import_module(place)
        disk.setattr(holder, name, full)
        with pytest.raises(NotWritten, match=r"No space left on device; finished work is kept; .* --resume"):
            run(scenario, out=tmp_path / "run")
    assert is_interrupted(tmp_path / "run")
    assert tree(resume(tmp_path / "run")) == tree(expected)


def test_a_disk_that_is_full_before_the_first_file_leaves_no_folder(small, tmp_path, monkeypatch):
    monkeypatch.setattr("edgefl.durable_file.os.fsync", full)
    with pytest.raises(UserError, match="cannot be written: No space left on device"):
        run(small(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_files_that_may_not_grow_stop_the_command_with_a_way_to_go_on(small, tmp_path):
    """The real thing, below every library: the system refuses to write beyond 60 kB into any file."""
    small()
    arguments = [str(tmp_path / "small.yaml"), "--set", "training.rounds=13"]
    command = [sys.executable, "-c", "import sys; from edgefl.cli import main; sys.exit(main())", "simulate"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    failed = subprocess.run(
        [*command, *arguments, "--out", str(tmp_path / "run")],
        capture_output=True, text=True, env=environment, preexec_fn=limited, check=False,
    )  # fmt: skip
    assert failed.returncode == 1, failed.stderr
    assert "fault: NotWritten:" in failed.stderr
    assert f"edgefl simulate --resume {tmp_path / 'run'}" in failed.stderr
    assert "Traceback" not in failed.stderr
    expected = run(small(training__rounds=13), out=tmp_path / "expected")
    assert tree(resume(tmp_path / "run")) == tree(expected)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that nobody can write")
def test_a_folder_that_cannot_be_written_is_a_mistake_of_the_user(small, tmp_path, capsys):
    small()
    assert main(["simulate", str(tmp_path / "small.yaml"), "--out", "/proc/self/run", "--no-train"]) == 2
    assert "the run directory cannot be written" in capsys.readouterr().err


def test_a_run_of_another_version_is_refused_for_resumption(small, tmp_path, monkeypatch):
    monkeypatch.setattr("edgefl.experiment.one_run.write_rounds", full)
    with pytest.raises(NotWritten):
        run(small(), out=tmp_path / "run")
    state = tmp_path / "run" / STATE
    state.write_text(json.dumps({**json.loads(state.read_text()), "edgefl": "0.0.1"}))
    with pytest.raises(UserError, match=r"created by edgefl 0\.0\.1"):
        resume(tmp_path / "run")
    state.write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        resume(tmp_path / "run")


def test_what_a_kill_left_before_the_first_run_is_no_obstacle(small, tmp_path):
    scenario = small()
    expected = run(scenario, out=tmp_path / "expected", train=False)
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("unfinished.lock", "scenario.yaml", f".{STATE}.edgefl-unfinished"):
        (folder / name).write_text("{")
    path = str(tmp_path / "small.yaml")
    assert main(["simulate", path, "--out", str(folder), "--no-train", "--json"]) == 0
    assert tree(folder) == tree(expected)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    from edgefl.scenario.loading import check

    return run(check({**SMALL, "methods": ["fedavg"]}), out=tmp_path_factory.mktemp("faults") / "run")


DAMAGES = {
    "cut short": lambda content: content[: len(content) // 2],
    "emptied": lambda content: b"",
    "overwritten": lambda content: b"\0" * len(content),
    "changed inside": lambda content: content[:300] + bytes(255 - byte for byte in content[300:400]) + content[400:],
}
FILES = [
    "summary.json", "scenario.yaml", "costs.json", "fedavg/seed-0/rounds.parquet", "fedavg/seed-0/events.parquet",
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named_by_verify_and_by_report(finished, tmp_path, capsys, name, damage):
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    path = folder / name
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert main(["verify", str(folder)]) in (1, 2)
    output = capsys.readouterr()
    assert "fault:" not in output.err, output.err
    if damage != "changed inside":  # there the values are wrong, and a law says so
        assert Path(name).name in output.out + output.err
    assert main(["report", str(folder)]) in (0, 2)
    assert "fault:" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["rounds.parquet", "events.parquet"])
def test_one_flipped_bit_in_any_column_is_found(finished, tmp_path, name):
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    path = folder / "fedavg/seed-0" / name
    content = path.read_bytes()
    group = pq.read_metadata(path).row_group(0)
    for number in range(group.num_columns):
        column = group.column(number)
        start = column.data_page_offset if column.dictionary_page_offset is None else column.dictionary_page_offset
        last = start + column.total_compressed_size - 1
        path.write_bytes(content[:last] + bytes([content[last] ^ 1]) + content[last + 1 :])
        found = verify(folder)
        assert any(name in line for line in found), column.path_in_schema
        assert main(["report", str(folder), "--html", str(tmp_path / "page.html")]) == 2


@pytest.mark.parametrize(
    "summary",
    [
        "[]",
        "3",
        '{"schema": 0}',
        '{"schema": 3, "methods": {}}',
        '{"schema": 1, "edgefl": "0.1.0", "methods": {"fedavg": []}}',
        '{"schema": 2}',
        '{"schema": 2, "methods": {"a": [1]}}',
    ],
)
def test_a_summary_of_another_schema_is_refused(finished, tmp_path, capsys, summary):
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    (folder / "summary.json").write_text(summary)
    for command in ("verify", "report"):
        assert main([command, str(folder)]) == 2
        output = capsys.readouterr()
        assert output.err.startswith("error: ")
        assert "summary.json" in output.err


def test_a_checkpoint_whose_writing_was_cut_off_is_not_used(tmp_path):
    import torch

    name = checkpoints_module.write_checkpoint(tmp_path, 10, {"model": torch.ones(3)}, {})
    path = tmp_path / name
    path.write_text(path.read_text()[:-2])
    with pytest.raises(checkpoints_module.CheckpointDamaged):
        checkpoints_module.read_checkpoint(tmp_path, name)
