"""Files of a run are read as they were written; what edgefl does not write is refused with file and field."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgefl.record import RunPaths
from edgefl.record.costs import read_costs, write_costs
from edgefl.record.emulation import Emulation, read_emulation, write_emulation
from edgefl.record.paths import how_to_continue
from edgefl.record.tables import read_settings

STEP = {
    "alpha": 4,
    "batch": 32,
    "layer_macs": 10,
    "forward_macs": 12,
    "training_flops": 66.0,
    "bytes_touched": 480,
    "peak_memory_bytes": 900,
    "operators": [["mm", 20.0, 96, 3, "matmul"]],
}
MEASURED = {
    "dilation": 4.0,
    "compute": "paced",
    "queue": "fifo",
    "wire_bytes": {"down": 1_052_000, "up": 1_049_000},
    "load": {
        "cpu": 0.4,
        "late_seconds_median": 1e-4,
        "late_seconds_worst": 0.02,
        "paused_seconds": 3.0,
        "paused_while_sending": 0.0,
    },
    "trust": ["the processors were busy all the time"],
    "machine": {"kernel": "6.8", "cores": 4},
}


def test_step_costs_are_written_as_they_were_read(tmp_path):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text(json.dumps({"fedavg": [STEP]}, indent=1) + "\n")
    write_costs(read_costs(first), second)
    assert second.read_bytes() == first.read_bytes()


def test_an_emulation_is_read_as_it_was_written(tmp_path):
    path = RunPaths(tmp_path).make("fedavg", 3).emulation
    assert read_emulation(path) is None
    write_emulation(Emulation.model_validate(MEASURED), path)
    assert json.loads(path.read_text()) == MEASURED
    assert read_emulation(path) == Emulation.model_validate(MEASURED)


def test_the_settings_of_a_sweeps_jobs_are_read_from_its_table(tmp_path):
    rows = [{"job": f"job-{n}", "training.rounds": n, "method": "fedavg", "seconds": 1.5} for n in (1, 2)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "sweep.parquet")
    assert read_settings(tmp_path / "sweep.parquet") == {
        "job-1": {"training.rounds": 1},
        "job-2": {"training.rounds": 2},
    }


@pytest.mark.parametrize(
    ("state", "hint"),
    [
        ('{"choices": {"emulated": true}}', "start the emulation again in another folder"),
        ('{"choices": {}}', "edgefl simulate --resume"),
        ("", "edgefl simulate --resume"),
    ],
)
def test_the_command_that_continues_a_run_follows_from_its_state(tmp_path, state, hint):
    RunPaths(tmp_path).state.write_text(state)
    assert how_to_continue(tmp_path).startswith(hint)
