from types import SimpleNamespace

import pytest
from pydantic import BaseModel

from edgefl.errors import Note, UserError
from edgefl.fleet import DeviceProfile, Estimate, load_profile, step_seconds, training_watts, value
from edgefl.fleet.profile import MeasuredStep, Memory
from edgefl.fleet.roofline import step_signature, waits_for_launches
from edgefl.validation import validated


def changed(data, path, new):
    *parents, last = path.split(".")
    inner = data
    for name in parents:
        inner = inner[name]
    inner[last] = new
    return data


def test_units_become_base_units(board):
    assert board.memory.training == 512 * 2**20
    assert value(board.compute.operator_overhead) == pytest.approx(1e-5)
    assert value(board.power.radio.down.active) == 0.5


def test_bytes_of_memory_that_are_rarely_meant_without_a_unit_are_mentioned():
    with pytest.warns(Note, match="4 without a unit is 4 B; did you mean '4 GB'?"):
        assert Memory(total="8 GB", training=4).training == 4


def test_an_estimate_has_three_values_and_a_plain_quantity_one(board):
    rate = board.compute.fp32_achievable
    assert [value(rate, bound) for bound in ("low", "nominal", "high")] == [1e9, 2e9, 4e9]
    assert {value(board.compute.memory_bandwidth, bound) for bound in ("low", "nominal", "high")} == {1e9}


def test_the_least_duration_needs_the_highest_rates_and_the_least_overheads(board):
    assert board.rates("low")[0] == 4e9
    assert board.rates("high")[0] == 1e9


def test_a_profile_survives_a_round_trip_through_plain_data(board):
    assert DeviceProfile.model_validate(board.model_dump(mode="json")) == board


def every_field(model):
    for name, field in model.model_fields.items():
        yield f"{model.__name__}.{name}", field
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from every_field(inner)


def test_every_field_says_what_it_means():
    for name, field in (*every_field(DeviceProfile), *every_field(Estimate)):
        assert len(field.description or "") > 10, name


@pytest.mark.parametrize(
    ("path", "new", "expected"),
    [
        ("kind", "sbcs", "kind: unknown choice 'sbcs'; did you mean 'sbc'?"),
        ("memroy", {}, "memroy: unknown key; did you mean 'memory'?"),
        ("name", "two words", "name: expected text of the form"),
        ("compute.fp32_peak", "10 Gflop/s", "compute.fp32_peak: unknown unit 'Gflop/s'"),
        ("compute.fp32_peak", 0, "compute.fp32_peak: expected 1 or more, found 0"),
        (
            "compute.fp32_achievable",
            {"low": 3, "nominal": 2, "high": 1},
            "compute.fp32_achievable: expected low <= nom",
        ),
        ("compute.fp32_achievable", "20 GFLOP/s", "expected compute.fp32_achievable to be at most compute.fp32_peak"),
        ("memory.training", "2 GiB", "expected memory.training to be at most memory.total"),
        ("power.idle", 9, "power: expected compute (whole device, 6 W) to be at least idle (9 W)"),
        ("modes", {"low": {"watts": "0.5 W"}}, "modes.low: expected watts (0.5 W) to be at least idle"),
        ("provenance.derivation", {"compute.fp32_peek": "x"}, "did you mean 'compute.fp32_peak'?"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_expected(profile_data, path, new, expected):
    with pytest.raises(UserError) as caught:
        validated(DeviceProfile, changed(profile_data, path, new), file="board.yaml")
    assert str(caught.value).startswith("board.yaml: ")
    assert expected in str(caught.value)
    assert "problems" not in str(caught.value)


def test_watts_of_training_follow_from_what_the_cores_do():
    board = load_profile("raspberry-pi-4")  # 2.8 W idle, 6.84 W with four busy cores, so each adds 1.01 W
    serial = training_watts(board, 3, waiting=2, reading=2)
    assert serial * 3 == pytest.approx(6.84 + 2 * 3.81)
    workers = training_watts(board, 3, waiting=2, reading=5)
    assert workers * 3 == pytest.approx(3 * 2.8 + 4.04 + 5 * 1.01)
    assert training_watts(board, 3, waiting=0, reading=5) == 6.84


def test_a_gpu_that_waits_for_launches_draws_the_watts_of_one_core():
    board = load_profile("jetson-orin-nx")
    small, large = (SimpleNamespace(flops=flops, bytes=0.0, count=100) for flops in (1.0, 1e12))
    waits = waits_for_launches(board, [small])
    assert waits == pytest.approx(step_seconds(board, [small]) - value(board.compute.step_overhead), rel=1e-6)
    assert training_watts(board, waits, 0.0, 0.0, waits) == pytest.approx(value(board.power.one_core))
    seconds = step_seconds(board, [small]) / 5
    step = MeasuredStep(signature=step_signature([small]), step="small", seconds=seconds)
    timed = board.model_copy(update={"compute": board.compute.model_copy(update={"measured_steps": (step,)})})
    assert waits_for_launches(timed, [small]) == pytest.approx(waits / 5)
    assert waits_for_launches(board, [large]) < 0.01 * step_seconds(board, [large])
    assert waits_for_launches(load_profile("raspberry-pi-4"), [small]) == 0
