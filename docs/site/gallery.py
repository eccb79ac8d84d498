"""The gallery: a page for each shipped scenario, and one for the scenarios of each paper."""

from __future__ import annotations

import re
from pathlib import Path

from markdown_pieces import fence

from edgefl import shipped

SCENARIOS = {name: path.read_text(encoding="utf-8") for name, path in shipped.files("scenarios").items()}
"""The text of each file by the scenario's name."""
PAPERS = {"fedadc": "FedADC", "fedalign": "FedAlign", "fedbr": "FedBR", "fedmlb": "FedMLB"}
"""Folders below ``scenarios/papers``, and the names of their papers."""
PICTURES = Path(__file__).resolve().parents[1] / "images"


def pages() -> dict[str, str]:
    """The text of each page by its path."""
    alone = {f"gallery/{name}.md": _alone(name) for name in SCENARIOS if not name.startswith("papers/")}
    papers = {f"gallery/papers/{folder}.md": _paper(folder) for folder in PAPERS}
    return {**alone, **papers}


def page_of(file: str) -> str | None:
    """The page about a scenario's file or a paper's folder; none if it is something else.

    >>> page_of("scenarios/lte_rural.yaml"), page_of("scenarios/papers/fedbr"), page_of("docs/data.md")
    ('gallery/lte_rural.md', 'gallery/papers/fedbr.md', None)
    """
    match = re.fullmatch(r"scenarios/(papers/[a-z]+|claims/[a-z]+|[a-z0-9_]+)(?:\.yaml|/.*)?", file.rstrip("/"))
    return f"gallery/{match[1]}.md" if match else None


def _alone(name: str) -> str:
    about, text = _parts(SCENARIOS[name])
    up = "../" * (1 + name.count("/"))
    picture = f"![The result]({up}images/{name}.png)\n\n" if (PICTURES / f"{name}.png").exists() else ""
    others = f"[All scenarios]({up}scenarios.md#the-shipped-scenarios)"
    return f"# {name}\n\n{about}\n\n{picture}{fence(text, 'yaml')}\n{others}\n"


def _paper(folder: str) -> str:
    text = (
        f"# The {PAPERS[folder]} paper's experiments\n\nEach file contains the published numbers. "
        "[How to compare a run with them](../../planning.md#the-papers-own-experiments); "
        "[all scenarios](../../scenarios.md#the-shipped-scenarios).\n\n"
    )
    for name, file in SCENARIOS.items():
        if name.startswith(f"papers/{folder}/"):
            about, rest = _parts(file)
            text += f"## {name.rpartition('/')[2]}\n\n{about}\n\n{fence(rest, 'yaml')}\n"
    return text


def _parts(text: str) -> tuple[str, str]:
    """The text of a file's first comment, with its commands as a block, and the rest of the file."""
    lines = text.splitlines()
    length = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    comment = [line.removeprefix("#").removeprefix(" ") for line in lines[:length]]
    about = "\n".join(f"    {line.strip()}" if line.startswith("  ") else line for line in comment)
    return about.strip(), "\n".join(lines[length:])
