"""Tests that need an extra are marked, and none skips itself where nothing may."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

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
    (names,) = re.findall(r"^edgefl-sim\[(.*)\]$", EXTRAS["all"][0])
    assert set(names.split(",")) == set(EXTRAS) - {"test", "docs", "all"} - ASKED_BY_NAME


def test_every_command_installs_this_checkout_and_an_extra_that_exists():
    """``edgefl`` on the index of Python's packages is another project."""
    folders = [TESTS.parent / name for name in ("docs", "edgefl", "scenarios")]
    paths = [*TESTS.parent.glob("*.md"), *(path for folder in folders for path in folder.rglob("*"))]
    texts = [path.read_text(encoding="utf-8") for path in paths if path.suffix in (".md", ".py", ".yaml", ".jinja")]
    assert [each for text in texts for each in re.findall(r"pip install '?edgefl.*|'edgefl\[.*", text)] == []
    extras = {
        name for text in texts for found in re.findall(r"-e '\.\[([\w,-]+)\]'", text) for name in found.split(",")
    }
    assert {"ray", "timm", "all"} <= extras - {"parts"} <= set(EXTRAS)


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
