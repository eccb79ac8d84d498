"""An app is imported anew for each run, the packages next to it are not, and nothing of a run stays behind."""

from __future__ import annotations

import random
import sys
import time

import pytest

from edgefl.flower.app import digest_of_app, loaded
from edgefl.flower.randomness import seeded
from edgefl.flower.scenario import AppSpec
from edgefl.flower.virtual_time import AppTime, virtual_time

from .runs import made_app, needs_flwr

pytestmark = needs_flwr


@pytest.fixture
def app(tmp_path):
    """The specification of an app and its folder, where a virtual environment contains a package."""
    spec = AppSpec.model_validate(made_app(tmp_path / "app", "pass"))
    packages = tmp_path / "app" / "venv" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "edgefl_test_package.py").write_text("value = 1")
    yield spec, tmp_path / "app", packages
    sys.modules.pop("edgefl_test_package", None)


def test_packages_of_an_environment_in_the_folder_are_imported_once(app, monkeypatch):
    spec, folder, packages = app
    monkeypatch.syspath_prepend(str(packages))
    (folder / "made.py").write_text((folder / "made.py").read_text() + "\nimport edgefl_test_package")
    with loaded(spec):
        first = sys.modules["edgefl_test_package"]
    assert "made" not in sys.modules
    with loaded(spec):
        assert sys.modules["edgefl_test_package"] is first


def test_the_digest_of_an_app_does_not_contain_its_environment(app):
    _, folder, packages = app
    before = digest_of_app(str(folder))
    (packages / "edgefl_test_package.py").write_text("value = 2")
    assert digest_of_app(str(folder)) == before


def test_modules_of_the_app_that_were_imported_before_are_imported_anew_and_restored(app, monkeypatch):
    spec, folder, _ = app
    monkeypatch.syspath_prepend(str(folder))
    import made

    with loaded(spec):
        assert sys.modules["made"] is not made
    assert sys.modules.pop("made") is made


def test_a_module_that_keeps_the_function_sleep_sleeps_in_the_present_run():
    kept, calls = [], []

    class Clock(AppTime):
        def sleep(self, seconds):
            calls.append((self, seconds))

    clocks = [Clock(), Clock()]
    for number, clock in enumerate(clocks):
        with virtual_time(clock):
            if not number:
                kept.append(time.sleep)
            kept[0](number + 1)
    kept[0](0)
    assert calls == [(clocks[0], 1), (clocks[1], 2)]


def test_the_generators_of_gpus_continue_as_before(monkeypatch):
    import torch

    restored = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: ["state"])
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", restored.append)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: None)
    with seeded(0, "test"):
        random.random()
        assert restored == []
    assert restored == [["state"]]
