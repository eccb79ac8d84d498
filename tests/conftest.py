"""Fixtures for the tests of every package."""

from __future__ import annotations

import copy
import math
import os
import signal
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch

from edgefl import registry
from edgefl.record.figures import QUANTITIES
from edgefl.scenario import load_scenario
from edgefl.scenario.loading import check
from edgefl.yaml_file import dump_yaml

from .no_skips import pytest_addoption, pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401
from .small_runs import SMALL

# Two processes with two OpenMP threads each on two cores are ten times slower than with one each.
torch.set_num_threads(1)

# Tests of all methods are of edgefl's own: entry points of packages that the user has installed do not exist here.
_installed = {
    (group, point.name, point.value) for group in entry_points().groups for point in entry_points(group=group)
}
registry.entry_points = lambda group: [
    point for point in entry_points(group=group) if (point.group, point.name, point.value) not in _installed
]

# How long an example takes says more about what else the machine does than about the code.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


LONG = ("test_fresh_processes.py", "tests/emulation/", "test_resume.py", "test_commands.py", "test_measuring.py")
"""What takes long and has few tests; it begins first, so that all workers end at about the same time."""


def pytest_collection_modifyitems(config, items):
    if "release" not in config.getoption("markexpr"):  # -m full and -m extras leave them out, too
        items[:] = [item for item in items if item.get_closest_marker("release") is None]
    items.sort(key=lambda item: not any(name in item.nodeid for name in LONG))


@pytest.fixture(scope="session", autouse=True)
def _as_wide_as_files_are():
    """Tables that tests read are as wide as in a file, whatever the terminal that started them exports."""
    os.environ.pop("COLUMNS", None)


@pytest.fixture
def ctrl_c_raises():
    """As at a terminal; a process that was started in the background ignores SIGINT from the beginning."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _one_process_trains(request, monkeypatch):
    """Where a test does not ask for them, worker processes would not see what it replaces in this process."""
    parallel = sys.modules.get("edgefl.training.engines.parallel")
    if parallel is not None and "worker_processes" not in request.fixturenames:
        monkeypatch.setattr(parallel, "SETTLED_SECONDS", None)
        monkeypatch.setattr(parallel, "EARLY_JOBS", math.inf)


@pytest.fixture(autouse=True)
def _figures_of_users_end_with_their_test():
    yield
    for name in [name for name, quantity in QUANTITIES.items() if not quantity.built_in]:
        del QUANTITIES[name]


class _Every(set):
    def __contains__(self, _):
        return True


@pytest.fixture
def any_python_file(monkeypatch):
    """Python files are executed that no scenario named."""
    monkeypatch.setattr("edgefl.user_code._allowed", _Every())


@pytest.fixture(scope="module")
def worker_processes():
    """Engines may use worker processes, which are ended after the module."""
    from edgefl.training.parallel.worker_pool import close_pools

    yield
    close_pools()


@pytest.fixture(scope="session")
def shared_run(tmp_path_factory) -> Path:
    """A finished run of two methods and two seeds that all tests of a process read; none writes into it."""
    from edgefl.experiment import run

    return run(
        check({**copy.deepcopy(SMALL), "methods": ["fedavg", "fedadc"], "seeds": [0, 1]}),
        out=tmp_path_factory.mktemp("shared") / "run",
    )


@pytest.fixture
def small(tmp_path: Path):
    """Makes the small scenario, with changes by dotted path."""

    def make(**changes: Any):
        data = copy.deepcopy(SMALL)
        path = tmp_path / "small.yaml"
        path.write_text(dump_yaml(data), encoding="utf-8")
        return load_scenario(path, {key.replace("__", "."): value for key, value in changes.items()})

    return make
