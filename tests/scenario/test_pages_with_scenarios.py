"""Pages with YAML: their examples are legal, show every option, and their tables name what exists."""

import re
from pathlib import Path

import pytest

from edgefl.errors import UserError
from edgefl.fleet import DeviceProfile
from edgefl.scenario import load_scenario, resolve
from edgefl.scenario.loading import check
from edgefl.units import UNITS
from edgefl.validation import validated

from .shown_options import PAGES, examples, unshown

DOCS = Path(__file__).parents[2] / "docs"
ELSEWHERE = {
    "flower.md": "tests/flower",
    "extending.md": "tests/test_plug_ins.py; its parts come from files and packages of the page",
}
READER = re.compile(r"no such file|expected a file at|is not installed|unknown model 'plain'")
"""What is wrong where an example names a file or a package that only its reader has, or needs an extra."""


@pytest.fixture(scope="module")
def shipped():
    return resolve(load_scenario("5g_100clients", {"methods": ["fedavg"], "targets": None, "stop": "rounds"}))


def of_page(page):
    for number, data in enumerate(examples(page)):
        if page.name not in ELSEWHERE:
            marks = [] if page.stem in ("README", "scenarios") else [pytest.mark.full]
            yield pytest.param(data, id=f"{page.stem}-{number}", marks=marks)


@pytest.mark.parametrize("said", [param for page in PAGES for param in of_page(page)])
def test_every_example_is_legal_in_the_shipped_scenario(shipped, said):
    if "kind" in said:
        assert validated(DeviceProfile, said)
        return
    if "compute" in said:
        said = {"fleet": [{"profile": "raspberry-pi-4", "share": 1, "link": "5g", "overrides": said}]}
    links = said.get("network", {}).get("links", {"5g": None})
    fleet = [{**group, "link": next(iter(links))} for group in shipped["fleet"]]
    data = {**shipped, "fleet": fleet, **said, "training": {**shipped["training"], **said.get("training", {})}}
    try:
        assert check(said if "name" in said else data)
    except UserError as error:
        if not READER.search(str(error)):
            raise


def test_every_option_is_shown():
    """By a shipped scenario, a profile, or an example or a command of the pages; others should not exist."""
    assert unshown() == []


def test_every_unit_of_a_scenario_that_is_on_the_page_exists():
    table = (DOCS / "scenarios.md").read_text(encoding="utf-8").split("| quantity | base | units |")[1].split("\n\n")[0]
    known = {unit for units in UNITS.values() for unit in units}
    assert set(re.findall(r"`([^`]+)`", table)) <= known
