"""The table of what fits with what in docs/methods.md; ``python docs/site/fit_matrix.py`` writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from edgefl.methods.build import build_method
from edgefl.methods.fits import NEEDS, Misfit, Need, Requirement, Takes, missing
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.recipe import METHODS, Method
from edgefl.simulation.protocols.base import AnyProtocol

PAGE = Path(__file__).parents[1] / "methods.md"
BEGIN, END = "<!-- {}: begin -->\n", "<!-- {}: end -->\n"


Column = tuple[Callable[[Method], Takes], Requirement]
"""What it takes from a method, and what it needs of one."""


def _rounds(**options: str) -> Column:
    protocol = TypeAdapter[Any](AnyProtocol).validate_python(options)
    return lambda method: protocol.takes(method.weighting), Requirement("", protocol.needs)


def _taking(*needs: Need) -> Column:
    return lambda _: dict.fromkeys(needs, ""), Requirement("", frozenset())


COLUMNS = {
    "asynchronous": _rounds(kind="asynchronous"),
    "`mix: models`": _rounds(kind="asynchronous", mix="models"),
    "hierarchical": _rounds(kind="hierarchical"),
    "without a server": _rounds(kind="gossip"),
    "codec that rounds": _taking("exact uplink", "plain traffic"),
    "local parameters": _taking("whole model", "shared model"),
    "`momentum`": _taking("no momentum"),
    "kept momentum": _taking("zero momentum", "no momentum"),
    "language model": _taking("classes"),
    "other task without classes": _taking("classes", "logits"),
}


OPTIMIZERS: dict[str, Any] = {
    **{f"`{kind}`": {"optimizer": kind} for kind in ("sgd", "adam", "adamw", "adagrad", "rmsprop")},
    "`state: keep`": {"optimizer": {"kind": "adamw", "state": "keep"}},
    "`state: average`": {"optimizer": {"kind": "adamw", "state": "average"}},
    "rate `over: steps`": {"lr": {"value": 1, "over": "steps"}},
}


def _parts(name: str) -> list[Need | None]:
    method = build_method(name, LocalOptions())
    taken = [
        [*(missing(part, takes(method)) for part in method.parts()), missing(needing, method.takes())]
        for takes, needing in COLUMNS.values()
    ]
    return [next(filter(None, needs), None) for needs in taken]


def _optimizers(name: str) -> list[Need | None]:
    found: list[Need | None] = []
    for options in OPTIMIZERS.values():
        try:
            build_method(name, LocalOptions(**options))
            found.append(None)
        except Misfit as error:
            found.append(error.need)
    return found


TABLES = {"what fits": (COLUMNS, _parts), "optimizers": (OPTIMIZERS, _optimizers)}


def matrix(columns: Mapping[str, Any], needs_of: Callable[[str], list[Need | None]]) -> str:
    """A row for each method with the need that a column takes, and what these needs are."""
    lines, shown = [f"| method | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"], set[Need]()
    for name in METHODS.names():
        if name in METHODS.plug_ins:
            continue
        firsts = needs_of(name)
        shown.update(filter(None, firsts))
        lines.append(f"| `{name}` | {' | '.join('yes' if need is None else f'*{need}*' for need in firsts)} |")
    needs = "; ".join(f"*{need}*: {words}" for need, words in NEEDS.items() if need in shown)
    return "\n".join([*lines, "", f"{needs}.", ""])


def with_matrix(text: str) -> str:
    """The page with the tables as they are now."""
    for name, table in TABLES.items():
        before, begin, rest = text.partition(BEGIN.format(name))
        _, end, after = rest.partition(END.format(name))
        text = f"{before}{begin}{matrix(*table)}{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(with_matrix(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
