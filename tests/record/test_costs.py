"""``costs.json`` is written as it was read, and what a step cannot cost is refused with its place."""

import json

import pytest

from edgefl.errors import UserError
from edgefl.record.costs import read_costs, write_costs

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


def test_the_same_steps_give_the_same_bytes(tmp_path):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text(json.dumps({"fedavg": [STEP]}, indent=1) + "\n")
    write_costs(read_costs(first), second)
    assert second.read_bytes() == first.read_bytes()


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"batch": -1}, "batch"),
        ({"training_flops": "many"}, "training_flops"),
        ({"operators": [["mm", 20.0]]}, "operators.0"),
        ({"operators": [["mm", -20.0, 96, 3, ""]]}, "operators.0.1"),
        ({"peak_memory_bytes": True}, "peak_memory_bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_step_that_cannot_be_is_refused_with_its_place(tmp_path, change, place):
    file = tmp_path / "costs.json"
    file.write_text(json.dumps({"fedavg": [STEP | change]}))
    with pytest.raises(UserError) as refused:
        read_costs(file)
    assert str(file) in str(refused.value)
    assert f"fedavg.0.{place}" in str(refused.value)
