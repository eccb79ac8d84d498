"""What README and docs say is so: their examples run, their links lead somewhere, their commands exist."""

from __future__ import annotations

import ast
import doctest
import json
import re
import runpy
from io import BytesIO
from typing import get_args

import pytest
from PIL import Image

import edgefl
from edgefl.record.kinds import EventKind

from .user_shell.pages import PAGES, ROOT


def python_of(page, *, examples):
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return "\n".join(block for block in blocks if block.lstrip().startswith(">>>") == examples)


def marked(page):
    dear = page.name in ("own-world.md", "extending.md")
    return pytest.param(page, marks=[pytest.mark.full] * dear, id=page.relative_to(ROOT).as_posix())


@pytest.mark.parametrize("page", [marked(page) for page in PAGES if python_of(page, examples=True)])
def test_the_examples_of_a_page_give_what_it_says(page):
    test = doctest.DocTestParser().get_doctest(python_of(page, examples=True), {}, page.name, str(page), 0)
    problems: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(test, out=problems.append)
    assert not problems, "".join(problems)


@pytest.mark.full
def test_the_example_notebook_runs_and_shows_its_pictures(tmp_path, monkeypatch):
    """A kernel that nothing else has prepared shows a value by these methods of it."""
    monkeypatch.chdir(tmp_path)
    cells = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    namespace: dict[str, object] = {}
    pictures = {}
    for source in ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]:
        *before, last = ast.parse(source).body
        exec(compile(ast.Module(before, []), "notebook", "exec"), namespace)
        value = eval(compile(ast.Expression(last.value), "notebook", "eval"), namespace)
        if picture := getattr(value, "_repr_png_", lambda: None)():
            pictures[source.splitlines()[-1]] = Image.open(BytesIO(picture)).size
    assert namespace["run"].labels == ["fedavg", "fedadc"]
    assert "fedadc" in namespace["run"]._repr_html_()
    assert list(pictures) == ["run", "run.plot()", 'run.plot("energy", methods=["fedadc"])']
    assert pictures["run"] == pictures["run.plot()"]
    assert min(min(size) for size in pictures.values()) > 500


PACKAGES = ("methods.md", "extending.md", "data.md", "flower.md")
"""Pages whose Python is a package's own; tests/test_plug_ins.py and tests/flower run those."""


@pytest.mark.release
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name not in PACKAGES and python_of(page, examples=False)],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_the_other_python_of_a_page_runs(page, tmp_path, monkeypatch):
    """Scenarios that a page loads have two rounds of two clients, and one seed."""
    few = {"training.rounds": 2, "training.cohort": 2, "seeds": [0]}
    load = edgefl.load_scenario
    monkeypatch.setattr(edgefl, "load_scenario", lambda name, changes=(): load(name, {**dict(changes), **few}))
    monkeypatch.chdir(tmp_path)
    for folder in ("scenarios", "docs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    namespace = {"__name__": "page"}
    for statement in ast.parse(python_of(page, examples=False)).body:
        try:
            exec(compile(ast.Module([statement], []), page.name, "exec"), namespace)
        except ModuleNotFoundError as error:
            if error.name != "pandas":  # a page uses it where the reader has it
                raise


def test_the_links_between_pages_lead_to_files():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if not target.startswith(("http://", "https://")):
                assert (page.parent / target).exists(), (page.name, target)


def test_the_table_of_what_fits_with_what_is_current():
    """``python docs/site/fit_matrix.py`` writes it."""
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert runpy.run_path(str(ROOT / "docs" / "site" / "fit_matrix.py"))["with_matrix"](text) == text


def test_the_readme_begins_with_the_two_commands_that_a_fresh_machine_needs():
    first_screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:25])
    assert "python -m pip install . && edgefl simulate scenarios/5g_100clients.yaml" in first_screen
    assert "python -m pip install -e '.[test]' && pytest" in first_screen


def test_the_time_model_explains_every_kind_of_row_of_the_event_log():
    text = (ROOT / "docs" / "time-model.md").read_text(encoding="utf-8")
    table = text.partition("## The event log")[2].partition("\n## ")[0]
    kinds = {
        kind
        for row in table.splitlines()
        if row.startswith("| `")
        for kind in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    assert kinds == set(get_args(EventKind))


def test_every_file_that_the_architecture_names_exists():
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = {name for name in re.findall(r"`([a-z_0-9/]+(?:\.py|/))`", text) if "NAME" not in name}
    homes = (ROOT / "edgefl", ROOT)
    assert [name for name in sorted(named) if not any((home / name).exists() for home in homes)] == []
