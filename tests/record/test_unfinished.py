"""Whether an unfinished run is an emulation is read from its state; a state that cannot be read decides nothing."""

import json

import pytest

from edgefl import limits
from edgefl.record.paths import RunPaths
from edgefl.record.unfinished import how_to_continue, is_emulated


@pytest.mark.parametrize(("emulated", "command"), [(True, "emulate"), (False, "simulate"), (1, "simulate")])
def test_the_command_that_continues_follows_from_the_state(tmp_path, emulated, command):
    RunPaths(tmp_path).state.write_text(json.dumps({"choices": {"emulated": emulated}}))
    assert how_to_continue(tmp_path) == f"edgefl {command} --resume {tmp_path}"


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "{}", '{"choices": 1}', "3", "", '{"choices": []}'])
def test_a_state_of_another_form_is_of_no_emulation(tmp_path, text):
    RunPaths(tmp_path).state.write_text(text)
    assert not is_emulated(tmp_path)


def test_a_large_state_is_not_read(tmp_path):
    file = RunPaths(tmp_path).state
    text = '{"choices": {"emulated": true}}'
    file.write_text(text.ljust(limits.JSON_BYTES))
    assert is_emulated(tmp_path)
    file.write_text(text.ljust(limits.JSON_BYTES + 1))
    assert not is_emulated(tmp_path)
