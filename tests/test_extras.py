"""Tests that need an extra are marked, and none skips itself where nothing may."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
EXTRAS = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
UNTESTED = {"test", "docs", "tensorboard", "all", "flower"}
"""Extras for tools, and the one of everything."""
ASKED_BY_NAME = {"flower"}
"""Extras whose packages fix the versions of many others; their tests have a mark of their own."""
TESTED_PLAINLY = {"optuna"}
"""Extras that the extra ``test`` installs."""


def packages(extra: str) -> list[str]:
    return [re.split(r"[^\w-]", each)[0] for each in EXTRAS[extra]]


def test_all_is_everything_that_a_user_may_add():
    (names,) = re.findall(r"^edgefl\[(.*)\]$", EXTRAS["all"][0])
    assert set(names.split(",")) == set(EXTRAS) - {"test", "docs", "all"} - ASKED_BY_NAME


def test_every_module_that_needs_an_extra_is_marked():
    needed = {
        package.replace("-", "_") for extra in set(EXTRAS) - UNTESTED - TESTED_PLAINLY for package in packages(extra)
    }
    unmarked, tried = [], set()
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        found = {name.partition(".")[0] for name in re.findall(r'importorskip\(\s*"([\w.]+)"', text)} & needed
        tried |= found
        if found and "pytest.mark.extras" not in text:
            unmarked.append(path.name)
    assert unmarked == [], "these need the mark: pytestmark = pytest.mark.extras"
    assert tried, "no test needs an extra"


SKIPPING = (
    "import pytest\ndef test_it(): pytest.importorskip('no_such_package')",
    "import pytest\npytest.importorskip('no_such_package')",
    "import pytest\n@pytest.mark.skip(reason='late')\ndef test_it(): ...",
    "def test_it(): ...",
)


@pytest.mark.parametrize(
    ("option", "outcome"), [([], "1 passed, 3 skipped"), (["--no-skips"], "1 failed, 1 passed, 2 err")]
)
def test_no_skips_makes_failures_of_skips(tmp_path, option, outcome):
    for number, code in enumerate(SKIPPING):
        (tmp_path / f"test_{number}.py").write_text(code)
    words = ["-q", "-p", "no_skips", *option, "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", *words]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert outcome in done.stdout
