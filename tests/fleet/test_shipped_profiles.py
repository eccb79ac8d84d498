"""Shipped profiles."""

import csv
import os
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from edgefl import registry, shipped
from edgefl.cli.entry import main
from edgefl.cost import CostModel
from edgefl.errors import UserError
from edgefl.fleet import Estimate, fits, library, load_profile, profile_names, step_seconds, value
from edgefl.fleet.profile import figure_paths
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.registry import MODELS, build_model
from edgefl.registry import PlugIns

WITHOUT_BOUNDS = ("fp32_peak", "operator_rates")
NAMES = sorted(shipped.files("device_profiles"))


def figure(profile, path):
    for name in path.split("."):
        profile = getattr(profile, name)
    return profile


def given(part, name, *rest):
    """Whether the profile gives this figure, which may be an optional one."""
    if name not in part.model_fields_set or getattr(part, name) is None:
        return False
    return not rest or given(getattr(part, name), *rest)


def test_the_devices_that_the_documentation_promises_are_there():
    promised = {
        "raspberry-pi-zero-2w", "raspberry-pi-4", "raspberry-pi-5", "rk3588-8gb", "n100-mini-pc",
        "jetson-nano", "jetson-xavier-nx", "jetson-orin-nano", "jetson-agx-orin",
        "phone-low-end", "phone-mid-range", "phone-flagship",
        "jetson-tx2", "jetson-agx-xavier", "jetson-orin-nx", "raspberry-pi-3b", "laptop-8-core", "pc-rtx-2080ti",
        "rp2040-board",
    }  # fmt: skip
    assert promised <= set(profile_names())


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_profile_has_its_file_name_sources_and_a_derivation_of_every_figure(name):
    profile = load_profile(name)
    assert profile.name == name
    assert profile.provenance.sources
    assert set(profile.provenance.derivation) == {path for path in figure_paths() if given(profile, *path.split("."))}
    # What is not verified says how uncertain it is.
    if not profile.provenance.verified:
        for path, derivation in profile.provenance.derivation.items():
            if derivation.startswith(("estimated", "fitted")) and path.rpartition(".")[2] not in WITHOUT_BOUNDS:
                assert isinstance(figure(profile, path), Estimate), path
    # Training reaches well below the peak of the processor.
    assert value(profile.compute.fp32_achievable) <= 0.45 * value(profile.compute.fp32_peak)


def test_boards_stay_within_a_factor_of_two_and_a_half_of_their_measured_linpack():
    if "EDGEFL_DATA" not in os.environ:
        pytest.skip("EDGEFL_DATA is not set: no Linpack results to compare with")
    path = Path(os.environ["EDGEFL_DATA"], "traces", "hpl_sbc", "hpl_sbc.csv")
    if not path.exists():
        pytest.skip(f"{path} is missing")
    with path.open() as file:
        rows = {row["device"]: row for row in csv.DictReader(file)}
    for name, device in {
        "raspberry-pi-4": "Raspberry Pi 4",
        "raspberry-pi-5": "Raspberry Pi 5 8GB",
        "rk3588-8gb": "Radxa ROCK 5B",
        "raspberry-pi-cm4": "Raspberry Pi CM4",
        "raspberry-pi-cm5": "Raspberry Pi CM5",
        "orange-pi-cm4": "Orange Pi CM4",
        "arduino-uno-q": "Arduino Uno Q",
        "milk-v-jupiter": "Milk-V Jupiter",
        "n150-mini-pc": "GMKtec NucBox G3 Plus",
    }.items():
        profile, row = load_profile(name), rows[device]
        assert 0.95 <= value(profile.compute.fp32_achievable) / (float(row["hpl_fp64_gflops"]) * 1e9) <= 2.5
        assert value(profile.power.compute) == pytest.approx(float(row["wall_watts"]), rel=0.1)


def test_jetsons_and_the_pc_with_a_gpu_execute_the_operators_of_cuda():
    cuda = {name for name in profile_names() if load_profile(name).backend == "cuda"}
    assert cuda == {name for name in profile_names() if name.startswith("jetson")} | {"pc-rtx-2080ti"}


def training_step(width, batch):
    model = build_model(MODELS["cnn"](width=width), (1, 28, 28), 10)
    return CostModel(model).cost(build_method("fedavg", LocalOptions()), model.depth, batch)


def test_the_list_shows_the_whole_stack_on_a_line_of_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["profile", "list"]) == 0
    assert "  jetson-agx-orin        PyTorch 2 (JetPack 5 or 6)\n" in capsys.readouterr().out


def test_a_microcontroller_holds_only_the_tiniest_model():
    board = load_profile("rp2040-board")
    assert fits(board, training_step(width=1, batch=2).peak_memory_bytes)
    assert not fits(board, training_step(width=4, batch=8).peak_memory_bytes)
    assert not fits(board, training_step(width=16, batch=2).peak_memory_bytes)


def test_it_is_slow_even_where_a_phone_is_bound_by_its_interpreter():
    tiny = training_step(width=1, batch=2).operators
    assert step_seconds(load_profile("rp2040-board"), tiny) > 20 * step_seconds(load_profile("phone-mid-range"), tiny)


@pytest.fixture
def profile_file(tmp_path, profile_data):
    path = tmp_path / "board.yaml"
    with path.open("w") as file:
        YAML(typ="safe", pure=True).dump(profile_data, file)
    return path


@pytest.fixture
def plug_in(monkeypatch):
    """Registers objects as if a distribution had declared them as entry points."""
    objects = {}

    def declared(*, group):
        assert group == "edgefl.device_profiles"
        return [EntryPoint(name, "somewhere:object", group) for name in objects]

    def add(name, plug_in):
        objects[name] = plug_in
        monkeypatch.setattr(library, "PLUG_INS", PlugIns("device profile", "edgefl.device_profiles", library._check))

    monkeypatch.setattr(registry, "entry_points", declared)
    monkeypatch.setattr(EntryPoint, "load", lambda point: objects[point.name])
    library._named.cache_clear()
    yield add
    library._named.cache_clear()


def test_a_path_is_what_ends_in_yaml_or_has_a_separator(profile_file, monkeypatch):
    assert load_profile(profile_file).name == "board"
    assert load_profile(str(profile_file)).name == "board"
    assert load_profile("board.yaml", folder=profile_file.parent).name == "board"
    monkeypatch.chdir(profile_file.parent)
    assert load_profile("board.yaml").name == "board"
    profile_file.rename(profile_file.parent / "board")
    assert load_profile("./board").name == "board"
    with pytest.raises(UserError, match="board has no power modes"):
        load_profile("./board:10W")


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(UserError, match=r"unknown device profile 'raspbery-pi-5'; did you mean 'raspberry-pi-5'\?"):
        load_profile("raspbery-pi-5")
    with pytest.raises(UserError, match=r"one of: .*raspberry-pi-4, .*, … \(edgefl profile list shows all"):
        load_profile("pi")


def test_a_missing_file_and_a_wrong_field_name_the_file(profile_file):
    with pytest.raises(UserError, match=r"nowhere\.yaml: no such file"):
        load_profile("nowhere.yaml")
    profile_file.write_text(profile_file.read_text().replace("1 GB/s", "1 GB"))
    with pytest.raises(UserError, match=r"board\.yaml: compute\.memory_bandwidth: unknown unit 'GB'"):
        load_profile(profile_file)


def test_an_entry_point_is_a_path_or_a_mapping(plug_in, profile_file, profile_data):
    plug_in("by-path", str(profile_file))
    plug_in("by-mapping", profile_data)
    assert {"by-path", "by-mapping", "raspberry-pi-5"} <= set(profile_names())
    assert load_profile("by-path") == load_profile("by-mapping")
    assert value(load_profile("by-path").power.compute) == 6


def test_a_wrong_entry_point_is_named(plug_in, profile_data):
    plug_in("number", 3)
    with pytest.raises(
        UserError, match=r"device profile 'number' .*\(somewhere:object\) .*expected a path or a mapping, found 3"
    ):
        load_profile("number")
    plug_in("wrong", {**profile_data, "kind": "toaster"})
    with pytest.raises(UserError, match=r"device profile 'wrong' of .*: kind: unknown choice 'toaster'"):
        load_profile("wrong")
