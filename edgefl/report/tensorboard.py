"""A run's rounds as TensorBoard scalars, with virtual time, bytes or rounds as the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgefl.errors import UserError
from edgefl.record.names import seed_folder
from edgefl.report.curves import column, spent_by_round
from edgefl.report.rows import run_names
from edgefl.report.run_result import RunResult
from edgefl.wording import escape

STEPS = {"by milliseconds": ("seconds", 1e3), "by bytes": ("bytes", 1.0), "by round": ("rounds", 1.0)}
"""For each group of scalars, the axis of its steps and the number of steps per unit."""


class Scalar(NamedTuple):
    """One point of a curve.

    Attributes:
        tag: group and figure (``by bytes/accuracy``).
        step: a whole number.
        seconds: virtual time, used as the wall clock, so that TensorBoard's relative time is virtual, too.
    """

    tag: str
    step: int
    seconds: float
    value: float


def scalars_of(run: RunResult, label: str, seed: int) -> Iterator[Scalar]:
    """Each round's metric, smoothed metric and loss, if evaluated, and the joules and FLOPs up to this round."""
    table = run.rounds_of(label, seed)
    spent = spent_by_round(table)
    name = escape(run.metric.name)
    columns = {name: "metric", f"{name}_ema": "metric_ema", "loss": "loss", "participants": "participants"}
    figures = {figure: column(table, name) for figure, name in columns.items() if name in table.column_names}
    figures |= {"joules": spent["joules"], "flops": spent["flops"]}
    for group, (kind, scale) in STEPS.items():
        for name, values in figures.items():
            for amount, seconds, value in zip(spent[kind], spent["seconds"], values, strict=True):
                if np.isfinite(value):
                    yield Scalar(f"{group}/{name}", round(float(amount) * scale), float(seconds), float(value))


def write_tensorboard(runs: Sequence[RunResult], folder: Path) -> list[Path]:
    """Write one event file for each method and seed, each in a separate folder.

    Returns:
        The written folders.

    Raises:
        UserError: tensorboard is not installed, a folder already contains event files, or it cannot be written.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise UserError("tensorboard is not installed; install it with pip install 'edgefl[tensorboard]'") from None
    places = [
        (run, label, result.seed, _place(folder, name if len(runs) > 1 else "", label, result.seed))
        for name, run in zip(run_names(runs), runs, strict=True)
        for label, results in run.results.items()
        for result in results
    ]
    for _, _, _, place in places:
        if any(place.glob("events.out.tfevents.*")):
            raise UserError("expected a folder without event files, found some", file=str(place))
    for run, label, seed, place in places:
        try:
            writer = EventFileWriter(str(place))
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror or error}", file=str(place)) from None
        for scalar in scalars_of(run, label, seed):
            value = Summary.Value(tag=scalar.tag, simple_value=scalar.value)
            writer.add_event(Event(wall_time=scalar.seconds, step=scalar.step, summary=Summary(value=[value])))
        writer.close()
    return [place for _, _, _, place in places]


def _place(folder: Path, run: str, label: str, seed: int) -> Path:
    # A run's name is a path if several runs have the same folder name.
    names = (run.replace("/", "_").replace("\\", "_"), label, seed_folder(seed))
    return folder.joinpath(*map(escape, names))
