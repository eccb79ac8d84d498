"""The page's pictures: matplotlib's figures as SVG, whose colours follow the page's light or dark setting."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import BytesIO

from edgefl.report.figure_file import draw
from edgefl.report.pictures import COLOURS, PANELS, Over, accuracy_figure
from edgefl.report.run_result import RunResult

_SIZES = {"wide": (6.1, 4.0), "narrow": (3.7, 3.9)}
"""Inches on screens and paper, and on phones."""

_VARIABLES = {
    **{colour.lower(): f"var(--m{number})" for number, colour in enumerate(COLOURS)},
    "#000000": "var(--ink)",
    "#ffffff": "var(--card)",
    "#ebebeb": "var(--line)",
    **dict.fromkeys(["#333333", "#4c4c4c", "#737373"], "var(--quiet)"),
}


def drawings(runs: Sequence[RunResult]) -> dict[str, str]:
    """For each x-axis the elements of its picture, in a wide and a narrow form."""
    return {
        over: "".join(
            _element(accuracy_svg(runs, over, size), over, width, f"{runs[0].metric.word} over {over}")
            for width, size in _SIZES.items()
        )
        for over in PANELS
    }


def accuracy_svg(runs: Sequence[RunResult], over: Over, size: tuple[float, float]) -> str:
    """One panel as an SVG file."""
    file = BytesIO()
    draw(accuracy_figure(runs, [over], size=size), file, "svg")
    return file.getvalue().decode()


def _element(file: str, over: str, width: str, words: str) -> str:
    """An SVG file as an element of the page: its own identifiers, few decimals, and the page's colours."""
    (box,) = re.findall(r'viewBox="([\d .]+)"', file)
    body = file[file.index("<defs>") :]
    body = re.sub(r'(id="|url\(#|href="#)', rf"\1{over}-{width}-", body)
    body = re.sub(r"(\d\.\d)\d+", r"\1", body)
    body = re.sub(r"#[0-9a-f]{6}\b", lambda found: _VARIABLES.get(found[0], found[0]), body)
    return f'<svg class="{width}" viewBox="{box}" role="img" aria-label="{words}">{body}'
