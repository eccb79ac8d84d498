"""A run directory in progress or interrupted: the finished runs, and the rounds in the journal of the next one.

A journal has the events of each round that has ended, in front of them their size in bytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from edgefl.files import read_json
from edgefl.record.events import Event
from edgefl.record.figures import Totals
from edgefl.record.metric import Metric
from edgefl.record.names import JOURNAL, SEED
from edgefl.record.paths import RunPaths
from edgefl.record.rounds import AMOUNTS, RoundRow
from edgefl.record.summary import SeedResult
from edgefl.wording import grouped

_TYPES = {int: pa.int64(), float: pa.float64(), str: pa.string()}
_SCHEMA = pa.schema([(name, _TYPES[type(value)]) for name, value in Event(0.0, "run")._asdict().items()])
HEAD = 8
"""Bytes in front of each round: its size."""


def packed(events: Sequence[Event]) -> bytes:
    """Rows in the journal's format, an Arrow record batch.

    >>> rows = [Event(0.5, "idle", round=3, client=7, seconds=0.25), Event(1.0, "stop", item="rounds")]
    >>> list(unpacked(packed(rows))) == rows
    True
    """
    arrays = [pa.array(column, field.type) for field, column in zip(_SCHEMA, zip(*events, strict=True), strict=True)]
    content: bytes = pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA).serialize().to_pybytes()
    return content


def unpacked(content: bytes) -> Iterator[Event]:
    """The rows of :func:`packed`."""
    batch = pa.ipc.read_record_batch(pa.py_buffer(content), _SCHEMA)
    return map(Event._make, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def journal_rows(path: Path) -> Iterator[Event]:
    """The events of the whole rounds in a journal, which another process may be writing."""
    content, begin = path.read_bytes(), 0
    while (end := begin + HEAD + int.from_bytes(content[begin : begin + HEAD], "little")) <= len(content) > begin:
        yield from unpacked(content[begin + HEAD : end])
        begin = end


def rounds_in(events: Iterable[Event], metric: Metric) -> list[RoundRow]:
    """The rounds that ended in these events; amounts that no event has alone are 0."""
    rows, spent, value = list[RoundRow](), Totals(), dict[str, float]()
    own, most, aggregated = dict[int, float](), 0.0, [each for each in AMOUNTS if each.source and each.total == "sum"]
    nan = float("nan")
    for event in events:
        for each in aggregated:
            if each.source is not None and (amount := each.source(event)):
                spent.charge(each.name, amount)
        if event.kind in ("transfer_end", "transfer_drop", "reception") and event.client >= 0:
            own[event.client] = own.get(event.client, 0.0) + event.bytes
            most = max(most, own[event.client])
        elif event.kind == "decision" and event.item == "selection":
            spent.charge("participants", len(event.facts.get("clients", ())))
        elif event.kind == "evaluation":
            value = {"metric": event.value} | {name: float(event.facts.get(name, nan)) for name in ("ema", "loss")}
        elif event.kind == "round_end":
            for name in ("exposed_seconds", "hidden_seconds", "evaluation_seconds"):
                spent.charge(name, float(event.facts.get(name, 0.0)))
            measured = {"metric": value.get("metric", nan), "metric_ema": value.get("ema", nan), "metric_ensemble": nan}
            names = {name: name.replace("metric", "accuracy") for name in measured}
            accuracies = {names[name]: of if metric.is_accuracy else nan for name, of in measured.items()}
            amounts = {each.name: spent[each.name] for each in AMOUNTS} | {"client_bytes": most}
            rows.append(
                RoundRow(event.round, event.time, **accuracies, **measured, loss=value.get("loss", nan),
                         critical_client=event.client, staleness=0.0, amounts=amounts)
            )  # fmt: skip
            spent, value = Totals(), {}
    return rows


class Unfinished(NamedTuple):
    """The finished runs by label, of how many, and the runs in progress, by label and seed, with their journals."""

    edgefl: str
    finished: dict[str, tuple[SeedResult, ...]]
    labels: Sequence[str]
    journals: dict[tuple[str, int], Path]


def read_unfinished(run: Path) -> Unfinished:
    """What ``unfinished.json`` and the journals contain."""
    state: dict[str, Any] = read_json(RunPaths(run).state)
    entries = [(each["label"], SeedResult.model_validate(each["entry"])) for each in state["finished"]]
    labels = state["choices"]["methods"]
    known = {label: tuple(each) for label, each in grouped(entries).items()}
    journals = {
        (label, int(file.parent.name.removeprefix(SEED))): file
        for label in labels
        for file in sorted((run / label).glob(f"{SEED}*/{JOURNAL}"))
    }
    finished = {label: known[label] for label in labels if label in known}
    return Unfinished(state["edgefl"], finished, labels, journals)
