"""Names and messages in a received run directory are shown as text, in every format."""

from __future__ import annotations

import html
import io
import json
import re

import pytest

from edgefl.cli.entry import main
from edgefl.cli.printing import say
from edgefl.report import RunResult
from edgefl.report.formats import latex
from edgefl.report.grid import Cell, Grid, Head

from .conftest import seed_result

ESCAPES = "\x1b]0;pwn\x07\x1b[31m\x9b2J\x7f\u202e\r"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
FORMATS = {
    "table": [],
    **{form: ["--format", form] for form in ("markdown", "csv", "latex")},
    "json": ["--json"],
    "paper": ["--layout", "paper"],
    "paper in Markdown": ["--layout", "paper", "--format", "markdown"],
}


@pytest.fixture
def received(make_run):
    """Runs whose every text holds this; two of them, so that runs are named as well."""

    def make(text):
        stop = {"reason": "fault", "round": 1, "message": f"m{text}"}
        label = text.replace("\\", "")  # a label names a folder
        methods = {
            f"a{label}": [seed_result(stop=stop)],
            f"b{label}": [seed_result(accuracy__final=0.5, stop=stop)],
        }
        return [make_run(methods, folder=folder, name=f"n{text}").path for folder in ("one", "two")]

    return make


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("form", FORMATS)
def test_a_report_prints_no_control_character(received, capsys, tmp_path, form, runs):
    folders = [str(folder) for folder in received(ESCAPES)[:runs]]
    assert main(["report", *folders, *FORMATS[form]]) == 0
    printed = capsys.readouterr().out
    assert "pwn" in printed
    assert CONTROL.findall(printed) == []
    assert main(["report", *folders, *FORMATS[form], "-o", str(tmp_path / "out")]) == 0
    assert CONTROL.findall((tmp_path / "out").read_text(encoding="utf-8")) == []


def test_a_terminal_gets_the_consoles_own_colours_alone(received, monkeypatch):
    from edgefl.cli import console

    terminal = io.StringIO()
    shown = console._SafeConsole(file=terminal, force_terminal=True, width=160, highlight=False)
    monkeypatch.setattr(console, "standard_output", lambda: shown)
    assert main(["report", str(received(ESCAPES)[0])]) == 0
    text = terminal.getvalue()
    assert "\x1b[2m" in text, "no colours, so the test shows nothing"
    assert CONTROL.findall(re.sub(r"\x1b\[[0-9;]*m", "", text)) == []
    assert "\x1b[31m" not in text


def test_the_page_holds_no_control_character(received, tmp_path):
    page = tmp_path / "page.html"
    assert main(["report", str(received(ESCAPES)[0]), "--html", str(page)]) == 0
    own, _, _ = page.read_text(encoding="utf-8").partition("plotly.js v")
    assert CONTROL.findall(own) == []
    assert "pwn" in own


def test_other_commands_print_no_control_character(received, capfd):
    run = str(received(ESCAPES)[0])
    for command in (
        ["verify", run],
        ["report", run, "--against", "paper"],
        ["timeline", run, "--method", ESCAPES, "-o", "x.json"],
        ["replay", run, "--set", f"{ESCAPES}=1"],
        ["simulate", ESCAPES],
        ["simulate", "5g_100clients", "--set", f"training.{ESCAPES}=1"],
        ["plan", "5g_100clients", "--set", f"fleet.0.profile={ESCAPES}"],
        ["profile", "show", ESCAPES],
        ["report", run, f"--{ESCAPES}"],
        [ESCAPES],
    ):
        assert main(command) in (1, 2)
        printed = capfd.readouterr()
        assert CONTROL.findall(printed.out + printed.err) == [], command


def test_a_scenarios_keys_and_names_are_printed_without_control_characters(tmp_path, capsys):
    file = tmp_path / "s.yaml"
    for line in (r'"\e[31mX": 1', r'name: "a\e[31m\u202e"', r'fleet: [{profile: "\e[31mX"}]', '"\\e]0;x\\a": {}'):
        file.write_text(f"{line}\n", encoding="utf-8")
        assert main(["scenario", "validate", str(file)]) == 2
        assert CONTROL.findall(capsys.readouterr().err) == []


def test_what_is_said_is_written_as_text(capsys):
    say(ESCAPES)
    say(ESCAPES, err=True)
    printed = capsys.readouterr()
    assert printed.out == printed.err == "\\x1b]0;pwn\\x07\\x1b[31m\\u009b2J\\u007f\\u202e\\x0d\n"


HOSTILE = '\n# <img src=x onerror="f()"> [a](javascript:f()) ![b](u) `c` *d* | &#60;i> ~~e~~ \\ _f_ \\b>'


def test_markdown_shows_names_as_text(received, capsys):
    rendered = pytest.importorskip("markdown_it").MarkdownIt("gfm-like", {"html": True, "linkify": False})
    folders = [str(folder) for folder in received(HOSTILE)]
    for form in ("markdown", "paper in Markdown"):
        assert main(["report", *folders, *FORMATS[form]]) == 0
        page = rendered.render(capsys.readouterr().out)
        tags = set(re.findall(r"<(\w+)", page))
        assert tags <= {"table", "thead", "tbody", "tr", "th", "td", "p", "strong", "br"}, tags
        assert html.escape('<img src=x onerror="f()"> [a](javascript:f())', quote=True).replace("&#x27;", "'") in page
        assert len(set(re.findall(r"<tr>\n((?:<t[dh].*\n)+)", page))) > 1


@pytest.mark.parametrize("label", ["\ud800", "a\udcff", "\udfff\ud800"])
def test_a_label_that_is_half_a_character_is_refused_in_every_format(make_run, capsys, tmp_path, label):
    run = make_run({"fedavg": [seed_result()]}).path
    file = run / "summary.json"
    summary = json.loads(file.read_text())
    summary["methods"] = {label: summary["methods"]["fedavg"]}
    file.write_text(json.dumps(summary))
    for form in [*FORMATS.values(), ["--html", str(tmp_path / "page.html")]]:
        assert main(["report", str(run), *form]) == 2
        message = capsys.readouterr().err
        assert message.startswith(f"error: {file}: methods.")
        assert message.endswith(": expected a method's label, found what cannot name a folder\n")


@pytest.mark.parametrize("label", ["# x", "- x", "+ x", "= x", "1. x", "2) x", "> x", "\tx", "---", "_x_", "<x"])
def test_no_name_begins_a_markdown_block(make_run, capsys, label):
    rendered = pytest.importorskip("markdown_it").MarkdownIt("commonmark", {"html": True})
    run = make_run({label: [seed_result()]}, name=label).path
    assert main(["report", str(run), "--format", "markdown"]) == 0
    _, _, below = capsys.readouterr().out.partition("\n\n")
    assert set(re.findall(r"<(\w+)", rendered.render(below))) <= {"p", "br"}


def test_latex_comments_end_no_line_early():
    forged = "a\n\\input{passwd}\rb"
    written = latex(Grid([Head(forged, text=True)], [[Cell(forged)]], [forged]))
    assert written.count("\n") == 8
    assert all(line[0] == "%" for line in written.splitlines() if "\\input" in line)


def test_a_name_does_not_add_a_verdict(received, capsys):
    run = RunResult(received("\nfedbr wins.")[0])
    from edgefl.report.verdict import verdict

    assert "fedbr wins." not in verdict(run).splitlines()
    assert "\n" not in repr(run)
    assert main(["report", str(run.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["verdict"] == verdict(run).split("\n")
