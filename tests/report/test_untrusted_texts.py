"""Names and messages of a run are shown as text, in every output."""

import html
import re

import pytest

from edgefl.cli.entry import main
from edgefl.report import RunResult
from edgefl.report.table import Table, words

from .conftest import seed_result

ESCAPES = "\x1b]0;pwn\x07\x1b[31m\x9b2J\x7f\u202e\r"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def received(make_run):
    """A run whose every text holds this."""

    def make(text, options=()):
        stop = {"reason": "fault", "round": 1, "message": f"m{text}"}
        label = text.replace("\\", "").replace("/", "∕")  # a label names a folder
        methods = {f"a{label}": [seed_result(stop=stop)], f"b{label}": [seed_result(accuracy__final=0.5, stop=stop)]}
        return make_run(methods, name=f"n{text}", folder=f"run{len(options)}").path

    return make


def test_the_terminal_gets_no_control_character(received, capsys):
    for options in ([], ["--details"]):
        assert main(["report", str(received(ESCAPES, options)), *options]) == 0
        text = capsys.readouterr().out
        assert "pwn" in text
        assert CONTROL.findall(text) == []


def test_errors_hold_no_control_character(received, capfd):
    for command in (["verify", str(received(ESCAPES))], ["simulate", ESCAPES], [ESCAPES]):
        assert main(command) in (1, 2)
        printed = capfd.readouterr()
        assert CONTROL.findall(printed.out + printed.err) == [], command


def test_the_page_is_escaped(received, tmp_path):
    hostile = "</script><img src=x onerror=alert(1)>&{{data}}"
    page = tmp_path / "page.html"
    run = received(hostile + ESCAPES)
    assert main(["report", str(run), "--html", str(page)]) == 0
    own = page.read_text(encoding="utf-8")
    assert CONTROL.findall(own) == []
    assert "<img" not in own
    assert html.escape(f"n{hostile}") in own
    assert "<img src=x" not in RunResult(run)._repr_html_()


def test_markdown_is_escaped(received, capsys):
    hostile = '\n# <img src=x onerror="f()"> [a](javascript:f()) ![b](u) `c` *d* | &#60;i> ~~e~~ \\ _f_ \\b>'
    assert main(["report", str(received(hostile)), "--format", "markdown"]) == 0
    written = capsys.readouterr().out
    assert r"\|" in written
    rendered = pytest.importorskip("markdown_it").MarkdownIt("gfm-like", {"html": True, "linkify": False})
    page = rendered.render(written)
    assert set(re.findall(r"<(\w+)", page)) <= {"table", "thead", "tbody", "tr", "th", "td", "p", "strong", "br"}
    assert html.escape('<img src=x onerror="f()"> [a](javascript:f())', quote=True).replace("&#x27;", "'") in page


def test_latex_is_escaped():
    text = "a_b&c#1\n\\input{passwd}\rb"
    written = Table([words(text, [text])], [text]).latex()
    assert r"a\_b\&c\#1" in written
    assert all(line[0] == "%" for line in written.splitlines() if "\\input" in line)


def test_csv_has_no_formulas_and_no_control_characters(make_run, capsys):
    run = make_run({f"=1+1{ESCAPES}": [seed_result()]}).path
    assert main(["report", str(run), "--format", "csv"]) == 0
    printed = capsys.readouterr().out
    assert CONTROL.findall(printed) == []
    assert "'=1+1" in printed
