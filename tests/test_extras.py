"""Tests that need an extra are marked, so that CI runs all of them where every extra is installed and none may skip."""

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
TESTED_PLAINLY = {"ray", "optuna"}
"""Extras that the tests install."""


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


@pytest.mark.parametrize(
    ("code", "failures"),
    [
        ("import pytest\ndef test_it(): pytest.importorskip('no_such_package')", "1 failed"),
        ("import pytest\npytest.importorskip('no_such_package')", "1 error"),
        ("import pytest\n@pytest.mark.skip(reason='late')\ndef test_it(): ...", "1 error"),
        ("def test_it(): ...", ""),
    ],
)
def test_no_skips_makes_failures_of_skips(tmp_path, code, failures):
    (tmp_path / "test_it.py").write_text(code)
    for option in ([], ["--no-skips"]):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no_skips", *option, "-p", "no:cacheprovider", "test_it.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            capture_output=True,
            text=True,
            check=False,
        )
        expected = failures if option else ""
        assert (done.returncode == 0 or (not option and "1 skipped" in done.stdout)) is not bool(expected), done.stdout
        assert expected in done.stdout
