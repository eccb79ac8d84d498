"""The table of the campaign, as Markdown for the docs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STATES = {"done": "", "unfinished": "**unfinished**: ", "failed": "**failed**: "}


def as_markdown(results: Mapping[str, Any]) -> str:
    """The results as a page: where they are from, a row for each part, and the commands."""
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    title = "Rehearsal: sizes are tiny and the figures are not meaningful. " if results["tiny"] else ""
    lines = [
        f"{title}{results['device']}; {versions}.",
        "",
        "| part | aim | result | hours | seed |",
        "|---|---|---|---|---|",
    ]
    for name, part in results["parts"].items():
        seed = "" if part["seed"] is None else str(part["seed"])
        lines.append(f"| {name} | {part['aim']} | {result(part)} | {part['seconds'] / 3600:.3f} | {seed} |")
    lines += ["", "```", *(part["command"] for part in results["parts"].values()), "```", ""]
    return "\n".join(lines)


def result(part: Mapping[str, Any]) -> str:
    """The result of a part in one cell."""
    met = {True: ", aim met", False: ", **aim missed**"}.get(part.get("met"), "")
    text = f"{STATES[part['state']]}{part.get('figure') or part.get('reason')}{met}"
    return text.replace("|", "\\|")
