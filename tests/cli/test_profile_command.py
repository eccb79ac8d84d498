import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from edgefl import shipped
from edgefl.cli.profile import app
from edgefl.errors import UserError
from edgefl.fleet import DeviceProfile, load_profile, profile_names


def run(*arguments):
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_list_names_every_profile():
    output = run("list")
    for name in profile_names():
        assert name in output


def test_list_in_json_has_numbers_in_base_units():
    by_name = {entry["name"]: entry for entry in json.loads(run("list", "--json"))}
    assert by_name["raspberry-pi-5"]["flops_per_second"] == pytest.approx(35.2e9)
    assert by_name["raspberry-pi-5"]["memory_bytes"] == 8 * 2**30


@pytest.mark.parametrize("name", ["raspberry-pi-5", "phone-flagship"])
def test_show_prints_a_profile_that_can_be_read_back(name):
    expected = load_profile(name).model_dump(mode="json", exclude_none=True)
    for output in (YAML(typ="safe", pure=True).load(run("show", name)), json.loads(run("show", name, "--json"))):
        shown = DeviceProfile.model_validate(output).model_dump(mode="json", exclude_none=True)
        assert shown["provenance"] == expected["provenance"]
        assert shown["compute"]["operator_overhead"] == pytest.approx(expected["compute"]["operator_overhead"])


def test_validate_says_ok_and_what_the_profile_says():
    output = run("validate", str(shipped.files("device_profiles")["jetson-nano"]))
    assert "jetson-nano.yaml: ok" in output
    assert "70.8 GFLOP/s" in output


def test_validate_says_what_is_wrong(tmp_path):
    text = Path(shipped.files("device_profiles")["jetson-nano"]).read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("memory_bandwidth", "memory_bandwith"))
    with pytest.raises(UserError, match=r"mine\.yaml: compute\.memory_bandwith: unknown key; did you mean"):
        run("validate", str(tmp_path / "mine.yaml"))
    with pytest.raises(UserError, match=r"found a folder"):
        run("validate", str(tmp_path))


def test_show_of_an_unknown_profile_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'jetson-nano'"):
        run("show", "jetson-nanno")
