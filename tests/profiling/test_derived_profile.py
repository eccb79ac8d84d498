"""Rates that are derived from those of a similar device."""

import re
import warnings

import pytest
from typer.testing import CliRunner

from edgefl.cli.profile import app
from edgefl.errors import Note, UserError
from edgefl.fleet import DeviceProfile, FleetGroup, load_profile, read_profile, resolve, step_seconds
from edgefl.fleet.figure import value
from edgefl.fleet.library import FITTED, note_doubtful
from edgefl.profiling.derived_profile import BOUNDS, DataSheet, guessed_profile
from edgefl.profiling.measurement import HELD_OUT, HeldOut

from .test_step_table import run

DERIVED = {
    "raspberry-pi-5": (2.96, 1.82, 2.0, 0.25),
    "raspberry-pi-cm5": (2.71, 1.82, 2.0, 0.25),
    "raspberry-pi-cm4": (0.958, 0.727, 0.833, 0.25),
    "rk3588-8gb": (4.37, 3.27, 2.0, 0.5),
    "raspberry-pi-3b": (0.403, 0.364, 0.435, 0.5),
    "raspberry-pi-zero-2w": (0.336, 0.273, 0.357, 0.5),
    "orange-pi-cm4": (0.471, 0.727, 0.625, 0.5),
    "arduino-uno-q": (0.807, 0.727, 0.625, 0.5),
    "phone-2019-mid-range": (0.863, 1.27, 1.17, 1.0),
    "phone-2019-flagship": (2.18, 2.91, 1.47, 1.0),
    "phone-2024-flagship": (6.39, 7.27, 3.96, 1.0),
    "phone-low-end": (0.395, 0.455, 0.306, 1.0),
    "phone-mid-range": (0.971, 1.27, 1.31, 1.0),
    "phone-flagship": (3.8, 5.82, 2.69, 1.0),
}
"""Products, memory and scalar code relative to the Raspberry Pi 4, and the error of the bounds."""


SHEETS = {
    "raspberry-pi-3b": (4, 1.2, 3.6),
    "raspberry-pi-3b-plus": (4, 1.4, 3.6),
    "raspberry-pi-zero-2w": (4, 1.0, 3.6),
    "raspberry-pi-cm4": (4, 1.5, 12.8),
    "raspberry-pi-4": (4, 1.8, 12.8),
    "raspberry-pi-5": (4, 2.4, 17.1),
    "raspberry-pi-cm5": (4, 2.4, 17.1),
    "orange-pi-cm4": (4, 1.8, 8.5),
    "arduino-uno-q": (4, 2.0, 14.4),
    "rk3588-8gb": (8, 2.1, 34.1),
}
"""Cores, their mean GHz, and the theoretical GB/s of 32-bit memory (rk3588: 64-bit), by data sheets."""


@pytest.mark.full
@pytest.mark.parametrize("name", SHEETS)
def test_a_guess_from_a_data_sheet_holds_for_each_board_that_is_left_out(name, tmp_path):
    board = load_profile(name)
    base = "raspberry-pi-5" if name == "raspberry-pi-4" else "raspberry-pi-4"
    base += "-torch1" * name.endswith("plus")
    (cores, ghz, bandwidth), file = SHEETS[name], tmp_path / "guess.yaml"
    sheet = ["--cores", cores, "--ghz", ghz, "--gb-per-second", bandwidth, "--watts", value(board.power.compute)]
    run("guess", "-o", file, "--from", base, "--ram", "4 GiB", *sheet)
    guess = read_profile(file)
    assert guess.memory.total == 4 * 2**30
    for step in (*HELD_OUT[::2], HeldOut("cnn", "fedavg", 16), HeldOut("resnet18", "fedavg", 16)):
        own = step_seconds(board, step.operators())
        low, nominal, high = (step_seconds(guess, step.operators(), bound=bound) for bound in BOUNDS)
        # The figures of the 3B+ are themselves known to a factor of 1.5.
        assert 1 / (2.3 if name.endswith("plus") else 1.75) < nominal / own < 1.75
        assert low < own < high
        assert low <= nominal / 3 * 1.001
        assert high >= nominal * 3 * 0.999


@pytest.mark.parametrize(
    ("sheet", "said"),
    [
        ((8, 0.05, 17, 3), None),
        ((64, 3.0, 40, 140), "compute.fp32_achievable is .* times"),
        ((4, 2.2, 3200, 12), "compute.memory_bandwidth is 137 times that of raspberry-pi-5"),
    ],
)
def test_a_guess_of_an_unusual_board_is_written_and_a_rate_unlike_any_fitted_one_is_said(sheet, said):
    *figures, watts = sheet
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        data = guessed_profile(load_profile("raspberry-pi-4"), "guess", DataSheet(*figures), watts)
    compute = DeviceProfile.model_validate(data).compute
    assert value(compute.fp32_peak) >= value(compute.fp32_achievable)
    notes = [str(each.message) for each in found if "times that" in str(each.message)]
    assert [re.search(said, note) is not None for note in notes] == [True] * (said is not None)


def test_a_base_that_is_not_known_is_reported_there(tmp_path):
    arguments = ["guess", "-o", str(tmp_path / "x.yaml"), "--cores", "4", "--ghz", "2", "--gb-per-second", "17"]
    result = CliRunner().invoke(app, [*arguments, "--watts", "9", "--from", "nope"])
    assert str(result.exception).startswith("--from nope: unknown device profile 'nope'")


def data_sheet_board(**compute):
    data = load_profile("raspberry-pi-5").model_dump(mode="json", exclude_none=True)
    data["compute"] |= {"operator_rates": {}, **compute}
    data["provenance"] = {"sources": "a data sheet", "date": "2026-11-21", "verified": False}
    return DeviceProfile.model_validate({**data, "name": "mine"})


def test_bounds_are_never_narrower_than_the_evidence():
    operators = HeldOut("cnn", "fedavg", 16).operators()
    plain = data_sheet_board(fp32_achievable=32e9, memory_bandwidth=9e9, operator_overhead=25e-6, step_overhead=1e-3)
    sure = load_profile("raspberry-pi-4")
    for board, factor in ((plain, 2.0), (load_profile("raspberry-pi-cm4"), 2.0), (sure, 1.102)):
        low, nominal, high = (step_seconds(board, operators, bound=bound) for bound in BOUNDS)
        assert nominal / low >= factor * (1 - 1e-12)
        assert high / nominal >= factor * (1 - 1e-12)
    changed = {"compute": {"fp32_achievable": "25 GFLOP/s", "memory_bandwidth": "1 GB/s"}}
    group = resolve(FleetGroup(profile="raspberry-pi-4", share=1, link="a", overrides=changed))
    assert str(group.profile.evidence("compute")) == "estimated, a factor of 2 to 3"
    jitter = resolve(FleetGroup(profile="raspberry-pi-4", share=1, link="a", overrides={"compute": {"jitter": 0.1}}))
    assert jitter.profile.evidence("compute") == sure.evidence("compute")


def test_a_rate_several_times_that_of_fitted_boards_is_said():
    assert all(load_profile(name).evidence("compute").error is not None for name in FITTED)
    with pytest.warns(Note, match=r"mine: compute.memory_bandwidth is 5\.17 times that of raspberry-pi-5"):
        note_doubtful(data_sheet_board(memory_bandwidth=9e9))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        note_doubtful(data_sheet_board(memory_bandwidth=2e9, fp32_achievable=70e9))
        note_doubtful(load_profile("raspberry-pi-5"))


def derived(name, file):
    products, memory, scalar, error = DERIVED[name]
    options = ("--products", products, "--memory", memory, "--scalar", scalar, "--error", error)
    run("derive", "raspberry-pi-4", name, "-o", file, *options)
    return read_profile(file)


def numbers(part, path=""):
    """The numbers of nested data, by their paths."""
    if isinstance(part, dict):
        inner = [numbers(value, f"{path}.{key}") for key, value in part.items()]
        return {place: number for each in inner for place, number in each.items()}
    return {path: part} if isinstance(part, float) else {}


def test_each_figure_scales_with_what_limits_it(tmp_path):
    base, made = load_profile("raspberry-pi-4").compute, derived("raspberry-pi-5", tmp_path / "five.yaml").compute

    def ratio(kind, figure):
        return value(getattr(made.operator_rates[kind], figure)) / value(getattr(base.operator_rates[kind], figure))

    assert value(made.fp32_achievable) / value(base.fp32_achievable) == pytest.approx(2.96, rel=1e-3)
    assert value(made.memory_bandwidth) / value(base.memory_bandwidth) == pytest.approx(1.82, rel=1e-3)
    assert value(base.operator_overhead) / value(made.operator_overhead) == pytest.approx(2.0)
    assert ratio("matrix-product", "fp32_achievable") == pytest.approx(2.96, rel=1e-3)
    # A tenth of the general bandwidth, or less than a third of the general FLOP/s: scalar code.
    assert ratio("convolution-depthwise-forward", "memory_bandwidth") == pytest.approx(2.0, rel=1e-3)
    assert ratio("convolution-pointwise-forward", "fp32_achievable") == pytest.approx(2.0, rel=1e-3)


PLAIN = ("raspberry-pi-3b", "phone-flagship", "phone-low-end")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in PLAIN else pytest.mark.full) for name in DERIVED]
)
def test_the_shipped_profile_is_what_its_derivation_says(name, tmp_path):
    shipped, made = load_profile(name), derived(name, tmp_path / "made.yaml")
    found, expected = (numbers(each.compute.model_dump()) for each in (shipped, made))
    if name == "raspberry-pi-5":  # its bounds are the errors on other deployments
        found, expected = (
            {at: n for at, n in all.items() if not at.endswith((".low", ".high"))} for all in (found, expected)
        )
    assert found == pytest.approx(expected)
    assert shipped.evidence("compute").kind == "derived"
    products, memory, scalar, _ = DERIVED[name]
    says = f"products x {products:.3g}, memory x {memory:.3g}, scalar code and overheads x {scalar:.3g}"
    assert says in shipped.provenance.derivation["compute.fp32_achievable"]


HEAT = 0.7
"""Phones have no fan: the part of their rate that lasts."""

A76 = 1.5
A77 = 1.23 * A76
A710 = 1.10 * 1.07 * A77
A715 = 1.05 * A710
X3 = 1.11 * 1.16 * 1.30 * A77
"""Instructions per cycle relative to a Cortex-A72, by what Arm states for each core and its predecessor."""


@pytest.mark.parametrize(
    ("name", "fast_cores", "memory", "instructions"),
    [
        # Cores, fp32 FLOP per cycle and GHz of the fast cores; GB/s; instructions per cycle relative to a Cortex-A72.
        ("phone-2019-mid-range", [(2, 16, 2.0)], 7, 1.5),
        ("phone-2019-flagship", [(1, 16, 2.84), (3, 16, 2.42)], 16, 1.5),
        ("phone-2024-flagship", [(2, 16, 4.3), (6, 16, 3.5)], 40, 2.75),
        ("phone-mid-range", [(1, 16, 2.3), (1, 16, 2.2)], 7, 1.5),
        ("phone-flagship", [(1, 32, 3.2), (2, 16, 2.8), (2, 16, 2.8)], 32, (X3 + 2 * A715 + 2 * A710) / 5),
    ],
)
def test_the_ratios_of_a_phone_follow_from_its_clock_width_and_memory(name, fast_cores, memory, instructions):
    products, bandwidth, scalar, _ = DERIVED[name]
    five = DERIVED["raspberry-pi-5"][0] / (4 * 16 * 2.4)  # a core of the same family, for each GFLOP/s of its peak
    peak = sum(cores * flops * clock for cores, flops, clock in fast_cores)
    clock = sum(cores * clock for cores, _, clock in fast_cores) / sum(cores for cores, *_ in fast_cores)
    assert products == pytest.approx(HEAT * five * peak, rel=5e-3)
    assert bandwidth == pytest.approx(memory / 5.5, rel=5e-3)
    assert scalar == pytest.approx(HEAT * clock / 1.8 * instructions, rel=5e-3)


def test_a_phone_with_small_cores_alone_follows_from_a_board_with_the_same_cores():
    products, bandwidth, scalar, _ = DERIVED["phone-low-end"]
    board_products, _, board_scalar, _ = DERIVED["arduino-uno-q"]  # four Cortex-A53 at 2.0 GHz, with a Linpack result
    assert products == pytest.approx(HEAT * 1.4 / 2.0 * board_products, rel=5e-3)
    assert bandwidth == pytest.approx(2.5 / 5.5, rel=5e-3)
    assert scalar == pytest.approx(HEAT * 1.4 / 2.0 * board_scalar, rel=5e-3)


def test_what_is_derived_from_an_estimate_is_one(tmp_path):
    same = ("--products", 1, "--memory", 1, "--scalar", 1)
    run("derive", "n100-mini-pc", "raspberry-pi-5", "-o", tmp_path / "made.yaml", *same)
    assert read_profile(tmp_path / "made.yaml").evidence("compute").kind == "estimated"


def test_ratios_above_the_devices_peak_are_refused_with_its_name(tmp_path):
    same = ("--products", 1, "--memory", 1, "--scalar", 1)
    with pytest.raises(UserError, match=r"rp2040-board cannot have these ratios: expected compute.fp32_achievable to"):
        run("derive", "raspberry-pi-4", "rp2040-board", "-o", tmp_path / "made.yaml", *same)
