"""Parsers that edgefl does not use, and checks of what a hostile text must not become in each format."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from plotly.offline import get_plotlyjs

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def check_text(text: str) -> None:
    """No control character, and no line that a text has begun."""
    assert CONTROL.findall(text) == []
    assert not re.search(r"(?m)^forged", text)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: set[tuple[str, str]] = set()
        self.scripts: list[str] = []
        self.addresses: set[str] = set()
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {(tag, ""), *((tag, name) for name, _ in attrs)}
        self.addresses |= {value or "" for name, value in attrs if name in ("href", "src", "style")}
        if tag == "script":
            self._in_script = True
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = self._in_script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data


class Page:
    """A page of HTML: its elements with attributes, its addresses, and its scripts."""

    def __init__(self, text: str) -> None:
        own = text.replace(get_plotlyjs(), "")
        assert CONTROL.findall(own) == []  # a line end has no meaning in HTML
        parser = _Tags()
        parser.feed(own)
        parser.close()
        self.elements, self.addresses, self.scripts = parser.found, parser.addresses, parser.scripts

    def check(self, ordinary: Page) -> None:
        """Its elements, attributes and scripts are those of the page of an ordinary run; only the data differ."""
        assert self.elements <= ordinary.elements, self.elements - ordinary.elements
        assert not any("forged" in address for address in self.addresses)
        data, *scripts = self.scripts
        json.loads(data, parse_constant=_no_constant)
        assert scripts == ordinary.scripts[1:]


def check_markdown(text: str) -> None:
    """It renders to tables and paragraphs alone, whose rows are as long as their head."""
    check_text(text)
    tokens = MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(text)
    inside = [child for token in tokens for child in token.children or []]
    kinds = {token.type.removesuffix("_open").removesuffix("_close") for token in [*tokens, *inside]}
    assert kinds <= {
        *("table", "thead", "tbody", "tr", "th", "td", "paragraph", "inline", "text", "strong"),
        *("hardbreak", "softbreak", "text_special"),
    }, kinds
    lengths = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("|")]
    assert len(set(lengths)) == 1, lengths


LATEX = {
    *("begin", "end", "toprule", "midrule", "bottomrule", "textbf", "textbackslash", "textasciitilde"),
    *("textasciicircum", "pm", "\\", "&", "%", "$", "#", "_", "{", "}"),
}
"""The commands of a table."""


def check_latex(text: str) -> None:
    """It contains only a table: known commands, closed groups, and as many cells in each row as columns."""
    check_text(text)
    uncommented = "".join(re.sub(r"(?<!\\)((?:\\\\)*)%.*", r"\1", line) + "\n" for line in text.split("\n"))
    commands = re.findall(r"\\([A-Za-z]+|.)", uncommented, re.DOTALL)
    assert set(commands) <= LATEX, set(commands) - LATEX
    plain = re.sub(r"\\([A-Za-z]+|.)", "", uncommented.replace(r"$\pm$", ""), flags=re.DOTALL)
    assert not re.search(r"[#$_^~]", plain), plain
    depth = 0
    for sign in re.findall("[{}]", plain):
        depth += 1 if sign == "{" else -1
        assert depth >= 0
    assert depth == 0
    rows = [re.sub(r"\\&", "", line) for line in uncommented.splitlines() if line.endswith(r"\\")]
    assert len({row.count("&") for row in rows}) == 1, rows


def check_csv(text: str) -> None:
    """Each record has a line and as many fields as the head, and no field is a formula."""
    check_text(text)
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert len(rows) == text.count("\n")
    assert {len(row) for row in rows} == {len(rows[0])}
    for field in (field for row in rows for field in row):
        if field[:1] in tuple("=+-@\t\r"):
            float(field)


def check_json(text: str) -> Any:
    """Strict JSON in UTF-8, without halves of surrogate pairs."""
    data = json.loads(text, parse_constant=_no_constant)
    check_text(text)
    return data


def _no_constant(name: str) -> None:
    raise AssertionError(name)


def check_trace(text: str) -> None:
    """The trace-event format: each event has a phase, numbers for process, thread and time, and texts as names."""
    data = check_json(text)
    json.dumps(data, ensure_ascii=False).encode()  # no half of a surrogate pair, which other readers refuse
    for event in data["traceEvents"]:
        assert event["ph"] in "XMsfC"
        assert isinstance(event["pid"], int)
        assert isinstance(event["name"], str)
        assert event["ph"] == "M" or event["ts"] >= 0


def check_scalars(folder: Path) -> None:
    """Event files of TensorBoard, whose tags and folders are plain texts."""
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for file in files:
        check_text(str(file.relative_to(folder)))
        read = reading.EventAccumulator(str(file))
        read.Reload()
        tags = read.Tags()["scalars"]
        assert tags
        for tag in tags:
            check_text(tag)
            assert tag.count("/") >= 1
