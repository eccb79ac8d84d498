"""The settings of a sweep: all combinations of a grid's values, or some of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgefl.errors import UserError
from edgefl.randomness import generator
from edgefl.validation import first_repeated
from edgefl.yaml_file import parse_yaml

Setting = Mapping[str, Any]
"""Values by their dotted path."""

_FIXED = ("name", "seeds", "sweep")
MOST_SETTINGS = 100_000
"""Each setting is a run of every method and seed."""
"""Fields that already distinguish jobs."""


def parse_grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Parse a grid from texts of the form ``PATH=V1,V2``; the values are the items of a YAML list.

    Raises:
        UserError: a text has another form, or a path is given twice.

    >>> parse_grid(["training.local.lr=0.01,1e-1", "data.partition={kind: iid},{kind: shards, s: 2}"])
    {'training.local.lr': [0.01, 0.1], 'data.partition': [{'kind': 'iid'}, {'kind': 'shards', 's': 2}]}
    """
    grid: dict[str, list[Any]] = {}
    for text in texts:
        origin = f"--grid {text}"
        path, equals, values = text.partition("=")
        if not equals or not values.strip():
            raise UserError("expected PATH=V1,V2, such as training.local.lr=0.01,0.1", file=origin)
        found = parse_yaml(f"[{values}]", file=origin)
        if path.strip() in grid:
            raise UserError("expected each path once", file=origin)
        grid[path.strip()] = list(found)
    return grid


def settings_of(grid: Mapping[str, Sequence[Any]], random: int | None = None) -> list[dict[str, Any]]:
    """Return every combination of the grid's values; the last path's value changes fastest.

    Args:
        grid: values by path.
        random: how many combinations to draw, always the same ones, in the grid's order; all if not given.

    Raises:
        UserError: a path is the name, the seeds or the sweep, a value is given twice, or there are too many settings.

    >>> settings_of({"a": [1, 2], "b": [3]})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    for path, values in grid.items():
        if path.split(".", maxsplit=1)[0] in _FIXED:
            raise UserError("a sweep cannot change this field; seeds are already a separate dimension", field=path)
        if (value := first_repeated(values)) is not None:
            raise UserError(f"expected different values, found {value[0]} twice", field=path)
    shape = [len(values) for values in grid.values()]
    count = math.prod(shape)
    if (number := min(count, random or count)) > MOST_SETTINGS:
        raise UserError(f"expected at most {MOST_SETTINGS:,} settings, found {number:,}; draw some of them (random)")
    every = random is None or random >= count
    chosen = range(count) if every else sorted(generator(0, "sweep").choice(count, size=random, replace=False).tolist())
    places = (np.unravel_index(number, shape) for number in chosen)
    return [{path: grid[path][place] for path, place in zip(grid, each, strict=True)} for each in places]
