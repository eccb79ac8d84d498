"""The documentation's site: strict to build, complete, and readable without a network."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urldefrag, urlsplit

import pytest

from edgefl import shipped

ROOT = Path(__file__).resolve().parents[1]

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("sphinx", "furo", "myst_parser")),
        reason="needs what the extra 'docs' installs",
    ),
]


class Page(HTMLParser):
    """What a page links to, what it loads by itself, and which places in it have a name."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.names: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = {key: value or "" for key, value in attrs}
        self.names |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a":
            self.links += [given["href"]] if "href" in given else []
        else:
            self.loads += [given[key] for key in ("src", "href", "srcset", "data", "action", "poster") if key in given]
        self.loads += re.findall(r"url\(([^)]+)\)", given.get("style", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as ``docs/site/build.py`` builds it for anyone."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "site" / "build.py"), str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {file.relative_to(site).as_posix(): Page(file) for file in site.rglob("*.html")}


def test_every_page_stands_in_it(pages):
    by_hand = {f"{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
    scenarios = {f"gallery/{name}.html" for name in shipped.files("scenarios") if not name.startswith("papers/")}
    made = {f"reference/{name}.html" for name in ("command-line", "python", "scenario", "methods", "device-profile")}
    assert by_hand | scenarios | made <= set(pages)


def test_every_link_inside_leads_to_a_place_that_is_there(pages, site):
    for name, page in pages.items():
        for link in page.links:
            if urlsplit(link).scheme:
                continue
            target, place = urldefrag(link)
            file = (site / name).parent / target if target else site / name
            assert file.resolve().exists(), f"{name}: {link}"
            if place and file.suffix == ".html":
                assert place in pages[file.resolve().relative_to(site.resolve()).as_posix()].names, f"{name}: {link}"


def test_no_page_asks_another_host_for_anything(pages, site):
    outside = re.compile(r"^\s*(?:[a-z]+:)?//|^\s*https?:")
    for name, page in pages.items():
        assert [each for each in page.loads if outside.match(each)] == [], name
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        asked = re.findall(r"url\(\s*['\"]?([^)'\"]+)", text) + re.findall(r"@import\s+['\"]([^'\"]+)", text)
        assert [each for each in asked if outside.match(each)] == [], sheet.name


def test_every_key_of_a_scenario_and_every_option_of_a_command_is_explained(site):
    from typer.main import get_command

    from edgefl.cli.entry import app
    from edgefl.scenario import json_schema

    reference = "".join((site / "reference" / f"{name}.html").read_text(encoding="utf-8")
                        for name in ("scenario", "methods", "models", "device-profile"))  # fmt: skip
    text = re.sub(r"<[^>]+>", "", reference)

    def keys(schema):
        if isinstance(schema, dict):
            yield from schema.get("properties", {})
            for inner in schema.values():
                yield from keys(inner)
        elif isinstance(schema, list):
            for inner in schema:
                yield from keys(inner)

    assert {key for key in keys(json_schema()) if key not in text} == set()
    shown = re.sub(r"<[^>]+>", "", (site / "reference" / "command-line.html").read_text(encoding="utf-8"))
    assert {name for name in get_command(app).commands if f"edgefl {name}" not in shown} == set()


def test_a_browser_opens_pages_without_a_word_or_a_request_and_they_fit_a_phone(site, tmp_path):
    folder = str(ROOT / "tests" / "report")
    sys.path.insert(0, folder)
    try:
        chromium = importlib.import_module("chromium")
    finally:
        sys.path.remove(folder)
    if chromium.program() is None:
        pytest.skip(f"no browser on the PATH, none of {', '.join(chromium.PROGRAMS)}")
    with chromium.Chromium(tmp_path) as browser:
        for page in ("index", "gallery/lte_rural", "reference/scenario", "reference/python"):
            for width in (1280, 390):
                browser.open(site / f"{page}.html", width=width)
                assert browser.run("document.documentElement.scrollWidth") <= width, page
        assert browser.errors == []
        assert [each for each in browser.requests if not each.startswith(("file:", "data:"))] == []
