"""The Python of README and docs runs in a notebook: in a second thread of a process that has used its threads."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from .pages import PAGES, blocks
from .session import HERE, Session
from .test_commands import name

PACKAGES = ("methods.md", "extending.md", "data.md")
"""Pages whose Python is a package's own; tests/test_plug_ins.py installs those and runs them."""


def python_of(page):
    return [block.text for block in blocks(page) if block.language == "python"]


WITH_PYTHON = [page for page in PAGES if page.name not in PACKAGES and python_of(page)]


@pytest.mark.release
@pytest.mark.parametrize("page", WITH_PYTHON, ids=name)
def test_the_python_of_every_page_runs_in_a_notebook(tmp_path, page):
    session = Session(tmp_path)
    (session.folder / "blocks.json").write_text(json.dumps(python_of(page)), encoding="utf-8")
    done = session.run(shlex.join([sys.executable, str(HERE / "notebook.py"), "blocks.json"]))
    assert done.failure is None, done.failure
