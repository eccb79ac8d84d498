"""Pieces of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; bars inside cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def keys(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table that explains keys one by one; on a phone its cells are below each other."""
    return "```{rst-class} keys\n```\n\n" + table(head, rows)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    """Text as code, even if it contains a backtick."""
    shown = str(text)
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"


def fence(text: str, language: str = "") -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```\n"
