"""The settings of a sweep, and its jobs: one setting with one seed and all methods, in its own run directory."""

import hashlib
import json
import math
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgefl.errors import EdgeflError, UserError
from edgefl.experiment.inputs import digest_of_scenario
from edgefl.experiment.run import resume, run
from edgefl.randomness import generator
from edgefl.record import RunPaths
from edgefl.record.paths import is_interrupted
from edgefl.record.summary import is_summary
from edgefl.scenario import Scenario, load_scenario, rehearse, resolve, with_overrides
from edgefl.scenario.loading import check
from edgefl.scenario.overrides import Overrides, of_engine, parse_overrides
from edgefl.validation import first_repeated
from edgefl.yaml_file import parse_yaml, read_yaml

Setting = Mapping[str, Any]
"""Values by their dotted path."""

_FIXED = ("name", "seeds", "sweep")
"""Fields that already distinguish jobs."""

MOST_SETTINGS = 100_000
"""Each setting is a run of every method and seed."""

Done = Callable[["Job", str | None], None]
"""Called with each finished job, and why it failed or ``None``."""

Search = Generator[list["Job"], list[dict[str, dict[str, Any]]], None]
"""Yields the jobs of a step, and receives the figures of each job, by method."""


def parse_grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Parse a grid from texts of the form ``PATH=V1,V2`` or ``PATH=[V1, V2]``: the items of a YAML list.

    >>> parse_grid(["training.local.lr=0.01,1e-1", "data.partition={kind: iid},{kind: shards, s: 2}"])
    {'training.local.lr': [0.01, 0.1], 'data.partition': [{'kind': 'iid'}, {'kind': 'shards', 's': 2}]}
    """
    grid: dict[str, list[Any]] = {}
    for text in texts:
        origin = f"--grid {text}"
        path, equals, values = text.partition("=")
        if not equals or not values.strip():
            raise UserError("expected PATH=V1,V2, such as training.local.lr=0.01,0.1", file=origin)
        if mistake := _bracket_mistake(values):
            raise UserError(f"{mistake}; expected PATH=V1,V2 or PATH=[V1, V2]", file=origin)
        found = parse_yaml(f"[{values}]", file=origin)
        if path.strip() in grid:
            raise UserError("expected each path once", file=origin)
        grid[path.strip()] = found[0] if len(found) == 1 and isinstance(found[0], list) else list(found)
        if not grid[path.strip()]:
            raise UserError("expected at least one value, found an empty list", file=origin)
    return grid


_CLOSED_BY = {"[": "]", "{": "}", "(": ")"}


def _bracket_mistake(values: str) -> str | None:
    """What is wrong with the brackets, quotes or commas of a list of values; ``None`` if nothing is.

    >>> _bracket_mistake("[1, 2"), _bracket_mistake("{kind: iid]"), _bracket_mistake("'a]', [1, {k: 2}]")
    ("'[' is not closed", "'{' is closed by ']'", None)
    """
    opened: list[str] = []
    bare = re.sub(r"""(?<![^\s,:\[{])(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')""", "_", values)  # without quoted texts
    for sign in re.findall(r"[][{}()]", bare):
        if sign in _CLOSED_BY:
            opened.append(sign)
        elif not opened:
            return f"'{sign}' closes no bracket"
        elif _CLOSED_BY[start := opened.pop()] != sign:
            return f"'{start}' is closed by '{sign}'"
    if opened:
        return f"'{opened[-1]}' is not closed"
    if re.match(r"\s*\(", bare):
        return "round brackets make no list"
    if re.search(r"(?:^|[\[,])\s*,", bare):
        return "a comma has no value before it"
    return None


def settings_of(grid: Mapping[str, Sequence[Any]], random: int | None = None) -> list[dict[str, Any]]:
    """Return every combination of the grid's values; the last path's value changes fastest.

    ``random`` is the number of combinations to draw, always the same ones, in the grid's order.

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


@dataclass(frozen=True)
class Job:
    """One setting with one seed, its whole scenario as plain data, and the labels to run.

    Its ``id`` is a hash of everything that it depends on: equal jobs share an id and run once.
    """

    id: str
    setting: Setting
    seed: int
    scenario: dict[str, Any]
    methods: tuple[str, ...]
    device: str
    train: bool


def jobs_of(
    path_or_name: str,
    changes: Overrides,
    settings: Sequence[Setting],
    *,
    seeds: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
    device: str = "auto",
    engine: str | None = None,
    train: bool = True,
    option: str = "sweep:",
) -> list[Job]:
    """Return all jobs, setting by setting and seed by seed; every scenario is checked before the first job runs.

    Jobs run in parallel, so a job whose scenario has the engine ``auto`` or ``ray`` trains sequentially unless
    ``engine`` is given. ``option`` is where the settings' values were given, for messages.
    """
    jobs = []
    for setting in settings:
        texts = [f"{path}={json.dumps(value)}" for path, value in setting.items()]
        overrides = [*parse_overrides(changes), *parse_overrides(texts, option)]
        scenario = load_scenario(path_or_name, overrides)
        scenario = scenario.with_seeds(seeds) if seeds else scenario
        kind = scenario.training.engine.kind
        chosen = engine or ("sequential" if kind in {"auto", "ray"} else kind)
        scenario = with_overrides(scenario, of_engine(chosen))
        labels = tuple(scenario.method(label).label for label in methods or [each.label for each in scenario.methods])
        rehearse(scenario, file=path_or_name, overrides=overrides, trains=train)
        for seed in scenario.seeds:
            data = {**resolve(scenario.with_seeds([seed])), "sweep": None}
            everything = json.dumps([data, labels, device, train], sort_keys=True)
            id = hashlib.blake2b(everything.encode(), digest_size=6).hexdigest()
            jobs.append(Job(id, setting, seed, data, labels, device, train))
    return jobs


def scenario_of(job: Job) -> Scenario:
    """Return the job's scenario."""
    return check(job.scenario, file=job.id)


def check_folder(job: Job, folder: Path) -> None:
    """Check that a folder is empty or contains the run of this job, finished or not."""
    file = RunPaths(folder).scenario
    if file.exists():
        found = read_yaml(file)
        if not isinstance(found, dict) or digest_of_scenario(found) != digest_of_scenario(resolve(scenario_of(job))):
            again = "delete this folder to run the job again"
            raise UserError(f"expected the scenario of sweep job {job.id}, found another; {again}", file=str(file))


def run_job(job: Job, folder: Path) -> str | None:
    """Run or resume a job in its run directory, unless it is finished; returns why it failed, or ``None``.

    The run directory is complete even if one method failed.
    """
    try:
        if is_interrupted(folder):
            resume(folder)
        elif not is_summary(RunPaths(folder).summary):
            run(scenario_of(job), out=folder, methods=job.methods, device=job.device, train=job.train)
    except (EdgeflError, OSError) as error:
        return error.message if isinstance(error, UserError) else str(error)
    except Exception as error:  # noqa: BLE001  (the error of one job must not stop the others)
        return f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
    return None
