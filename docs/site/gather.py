"""Gathers the site's pages: those written by hand, those made from code and scenario files, and the order of all."""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path

import command_reference
import gallery
import python_reference
import scenario_reference

ROOT = Path(__file__).resolve().parents[2]

NAVIGATION = {
    "Start": {"Your own, in fifteen minutes": "tutorial", "Where it runs": "where-it-runs", "Results": "results",
              "For Flower users": "flower", "Coming from another tool": "coming-from"},
    "Describe my world": {
        "Scenarios": "scenarios", "Data": "data", "Your own model": "own-model", "Methods": "methods",
        "Schedulers": "schedulers", "Device profiles": "device-profiles",
        "From measured rounds to a fleet": "calibration",
        "Links, traces, topologies": "own-world", "Privacy and its costs": "privacy",
    },
    "Ask without training": {
        "Planning and sweeping": "planning", "Resume, replay, verify": "reliability", "Emulation": "emulation",
    },
    "Present": {"Reading and presenting a result": "report", "Predicted and measured": "validation"},
    "Reference": {
        "Command line": "reference/command-line", "Scenario file": "reference/scenario",
        "Methods' options": "reference/methods", "Models' options": "reference/models",
        "Device profile file": "reference/device-profile", "Python": "reference/python",
        "How time is modelled": "time-model", "Performance": "performance", "Parts of your own": "extending",
        "Architecture": "architecture", "Contributing": "contributing",
        "Changes": "changelog",
    },
}  # fmt: skip
"""The side bar: pages under headings. A page that is not listed fails the build."""

OUTSIDE = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Files outside ``docs`` to which pages link, and the page that replaces each."""

_LINK = re.compile(r"(\]\()([^)#\s]+)")


def gather(folder: Path) -> None:
    """Write everything that Sphinx reads into a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "images", folder / "images")
    shutil.copy(ROOT / "docs" / "notebook.ipynb", folder)
    for path, text in pages().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(led(path, text), encoding="utf-8")


def pages() -> dict[str, str]:
    """The text of every page by its path."""
    written = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    written["index.md"] += "".join(_contents(heading, entries) for heading, entries in NAVIGATION.items())
    shown = {_title(text): path.removesuffix(".md") for path, text in gallery.pages().items()}
    written["scenarios.md"] += _contents("", shown)
    return {
        **written,
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        "contributing.md": (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").replace("](docs/", "]("),
        "reference/command-line.md": command_reference.page(),
        "reference/python.rst": python_reference.page(),
        **scenario_reference.pages(),
        **gallery.pages(),
    }


def led(page: str, text: str) -> str:
    """A page whose links to files outside ``docs``, valid on a code host, lead to pages of the site."""
    here = posixpath.dirname(page)

    def lead(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", here, match[2]))
        page_of = OUTSIDE.get(target) or gallery.page_of(target)
        return f"{match[1]}{posixpath.relpath(page_of, here or '.')}" if page_of else match[0]

    return _LINK.sub(lead, text)


def _title(text: str) -> str:
    return text.partition("\n")[0].removeprefix("# ")


def _contents(heading: str, pages: dict[str, str]) -> str:
    caption = f":caption: {heading}\n" if heading else ""
    entries = "\n".join(f"{title} <{page}>" for title, page in pages.items())
    return f"\n```{{toctree}}\n:hidden:\n{caption}\n{entries}\n```\n"
