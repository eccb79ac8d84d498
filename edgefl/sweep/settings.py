"""The settings of a sweep: all combinations of a grid's values, or some of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from edgefl.errors import UserError
from edgefl.randomness import generator
from edgefl.yaml_file import parse_yaml

Setting = Mapping[str, Any]
"""Values by their dotted path."""

_FIXED = ("name", "seeds", "sweep")
"""What jobs are told apart by already."""


def parse_grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """The grid that texts of the form ``PATH=V1,V2`` say; the values are the items of a YAML list.

    Raises:
        UserError: a text has another form, or a path stands twice.

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
            raise UserError("each path may stand once", file=origin)
        grid[path.strip()] = list(found)
    return grid


def settings_of(grid: Mapping[str, Sequence[Any]], random: int | None = None) -> list[dict[str, Any]]:
    """Every combination of the grid's values, the last path's changing fastest.

    Args:
        grid: values by path.
        random: draw so many of the combinations, always the same ones; they keep their order.

    Raises:
        UserError: a path that tells jobs apart already, or a value that stands twice.

    >>> settings_of({"a": [1, 2], "b": [3]})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    for path, values in grid.items():
        if path.split(".", maxsplit=1)[0] in _FIXED:
            raise UserError("a sweep cannot change this; seeds are its own dimension already", field=path)
        for index, value in enumerate(values):
            if value in values[:index]:
                raise UserError(f"expected different values, found {value} twice", field=path)
    count = math.prod(len(values) for values in grid.values())
    combinations = (dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))
    if random is None or random >= count:
        return list(combinations)
    kept = set(generator(0, "sweep").choice(count, size=random, replace=False).tolist())
    return [setting for number, setting in enumerate(combinations) if number in kept]
