"""The words of a run directory: kinds of events, of budgets, reasons why runs stop, fates of jobs; its columns."""

from typing import Literal, NamedTuple, get_args, get_type_hints

import pyarrow as pa

EventKind = Literal[
    "run", "work", "round_start", "decision", "dispatch", "refused", "dropout", "lost", "failure",
    "transfer_start", "transfer_end", "transfer_drop", "transfer_break", "reception", "radio", "capacity",
    "compute_start", "compute_end", "compute_partial", "compute_drop", "forward", "secure", "idle",
    "aggregation", "server", "feedback", "evaluation", "round_end", "target", "budget",
    "diverged", "stalled", "fault", "stop",
]  # fmt: skip
"""The kinds of rows of an event log; ``docs/time-model.md`` explains each."""

Lost = Literal["late", "dropped", "prefetched_in_vain", "retried", "broken", "evaluated", "unfinished"]
"""Why a job, or what a client received for it, was not aggregated.

``late``: its round closed before; ``dropped``: its client dropped out; ``prefetched_in_vain``: the participation never
began, or then needed other parts, also of a broadcast; ``retried``: the client started the job again; ``broken``:
delivered by an attempt to transfer it that broke, and not kept; ``evaluated``: it was for an evaluation, which has no
update; ``unfinished``: the run ended before.
"""

Fate = Literal["useful", Lost]
"""The use of delivered bytes; ``useful``: their job was aggregated."""

FATES: tuple[Fate, ...] = get_args(Fate)

LOST: tuple[Lost, ...] = get_args(Lost)

CONTINUED: tuple[Lost, ...] = ("prefetched_in_vain", "retried")
"""Only the bytes so far are lost: the job itself continues, or never began."""


def column(name: str, kind: pa.DataType, unit: str, meaning: str) -> pa.Field:
    """A column of a table of a run directory, with its unit and meaning in its metadata."""
    return pa.field(name, kind, metadata={"unit": unit, "meaning": meaning})


F64, I32, I64 = pa.float64(), pa.int32(), pa.int64()


class Column(NamedTuple):
    """The annotation of a field of a row that is a column of a table; see :func:`column`."""

    kind: pa.DataType
    unit: str
    meaning: str


def schema_of(row: type) -> pa.Schema:
    """The columns of a table whose rows have this type."""
    hints = get_type_hints(row, include_extras=True)
    columns = [(name, hint.__metadata__[0]) for name, hint in hints.items() if hasattr(hint, "__metadata__")]
    return pa.schema([column(name, *of) for name, of in columns])
