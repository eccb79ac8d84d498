from importlib.metadata import EntryPoint

import pytest
from ruamel.yaml import YAML

from edgefl import registry
from edgefl.errors import UserError
from edgefl.fleet import library, load_profile, profile_names, value
from edgefl.registry import PlugIns


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
    monkeypatch.chdir(profile_file.parent)
    assert load_profile("board.yaml").name == "board"
    profile_file.rename(profile_file.parent / "board")
    assert load_profile("./board").name == "board"


def test_a_relative_path_starts_at_the_folder_given(profile_file):
    assert load_profile("board.yaml", folder=profile_file.parent).name == "board"


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(UserError, match=r"unknown device profile 'raspbery-pi-5'; did you mean 'raspberry-pi-5'\?"):
        load_profile("raspbery-pi-5")


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
