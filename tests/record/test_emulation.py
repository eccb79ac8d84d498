"""``emulation.json`` is read as it was written; a file that no emulation writes is refused in one sentence."""

from __future__ import annotations

import json

import pytest

from edgefl.errors import UserError
from edgefl.record import RunPaths
from edgefl.record.emulation import Emulation, read_emulation, write_emulation

MEASURED = {
    "dilation": 4.0,
    "compute": "paced",
    "queue": "fifo",
    "wire_bytes": {"down": 1_052_000, "up": 1_049_000, "more_down": 0, "more_up": 2_000},
    "load": {
        "cpu": 0.4,
        "late_seconds_median": 1e-4,
        "late_seconds_worst": 0.02,
        "paused_seconds": 3.0,
        "paused_while_sending": 0.0,
    },
    "after_round": 0,
    "trust": ["the processors were busy all the time"],
    "machine": {"kernel": "6.8", "cores": 4},
}


def test_it_is_read_as_it_was_written(tmp_path):
    path = RunPaths(tmp_path).make("fedavg", 3).emulation
    assert read_emulation(path) is None
    resumed = MEASURED | {"after_round": 2}
    write_emulation(Emulation.model_validate(resumed), path)
    assert path == tmp_path / "fedavg" / "seed-3" / "emulation.json"
    assert json.loads(path.read_text()) == resumed
    found = read_emulation(path)
    assert found == Emulation.model_validate(resumed)
    assert found.words == "time dilation 4, paced computation, fifo queues, resumed after round 2"


def test_a_file_of_a_run_that_was_not_resumed_may_lack_the_round(tmp_path):
    path = RunPaths(tmp_path).make("fedavg", 3).emulation
    path.write_text(json.dumps({key: value for key, value in MEASURED.items() if key != "after_round"}))
    found = read_emulation(path)
    assert found is not None
    assert found.after_round == 0
    assert "resumed" not in found.words


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dilation": 0}, "dilation: "),
        ({"compute": "guessed"}, "compute: "),
        ({"wire_bytes": {"down": -1, "up": 2}}, "wire_bytes.down: "),
        ({"load": {**MEASURED["load"], "cpu": "busy"}}, "load.cpu: "),
        ({"speed": 1}, "speed"),
    ],
)
def test_a_file_that_no_emulation_writes_is_refused(tmp_path, change, message):
    path = tmp_path / "emulation.json"
    path.write_text(json.dumps(MEASURED | change))
    with pytest.raises(UserError) as refusal:
        read_emulation(path)
    assert str(refusal.value).startswith(str(path))
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
