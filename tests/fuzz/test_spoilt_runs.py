"""Whatever stands in a run directory: each command reads it, or one message says what is wrong."""

from __future__ import annotations

import copy
import json
import struct
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.cli import main
from edgefl.experiment import run
from edgefl.scenario.loading import check

from ..small_runs import SMALL, Stop, tree
from .test_fuzz import cases, folder

SCENARIO = {**SMALL, "methods": ["fedavg"], "training": {**SMALL["training"], "rounds": 2}, "keep_models": "server"}
MOST_BYTES = 64
"""Of a file that are changed at one place."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The files of a finished run and of an interrupted one."""
    place = tmp_path_factory.mktemp("runs")
    run(check(SCENARIO), out=place / "finished")
    with suppress(KeyboardInterrupt):
        run(check(SCENARIO), out=place / "interrupted", listeners=[Stop(1)])
    return {kind: tree(place / kind) for kind in ("finished", "interrupted")}


def nested(levels: int) -> list[Any]:
    """An empty list in a list in a list."""
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


VALUES: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.just([])
    | st.just({})
    | st.sampled_from([10**400, "\x1b[31m", "<script>", "../../x", "a" * 5000])
    | st.just(nested(200))
)
TYPES = [pa.int8(), pa.int64(), pa.float32(), pa.string(), pa.bool_(), pa.list_(pa.int64()), pa.binary(), pa.null()]


def with_changed_bytes(draw, content: bytes) -> bytes:
    """Cut short, longer, or other bytes in one place."""
    if not content:
        return b"\0"
    place = draw(st.integers(0, len(content) - 1))
    kind = draw(st.sampled_from(["cut", "more", "changed"]))
    if kind == "cut":
        return content[:place]
    new = draw(st.binary(min_size=1, max_size=MOST_BYTES))
    return content[:place] + new + content[place + (0 if kind == "more" else len(new)) :]


def with_changed_value(draw, content: bytes) -> bytes:
    """One value somewhere in JSON data is another one, or its key."""
    top: dict[Any, Any] = {"": copy.deepcopy(json.loads(content))}
    holder: Any = top
    key: Any = ""
    while isinstance(holder[key], dict | list) and holder[key] and draw(st.integers(0, 4)):
        inside = holder[key]
        places = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        holder, key = inside, draw(st.sampled_from(places))
    if isinstance(holder, dict) and holder is not top and draw(st.booleans()):
        holder[draw(st.text(max_size=8))] = holder.pop(key)
    else:
        holder[key] = draw(VALUES)
    return json.dumps(top[""]).encode(errors="replace")


def with_changed_table(draw, content: bytes) -> bytes:
    """A column of a Parquet table has another type or other figures, is missing, or rows occur twice or not at all."""
    schema = pq.read_schema(pa.BufferReader(content))
    table = pq.read_table(pa.BufferReader(content))
    number = draw(st.integers(0, table.num_columns - 1))
    field = table.schema.field(number)
    kind = draw(st.sampled_from(["type", "figures", "missing", "twice", "rows"]))
    if kind == "type":
        column = pa.nulls(table.num_rows, draw(st.sampled_from(TYPES)))
        table = table.set_column(number, field.name, column)
    elif kind == "figures":
        figures = draw(st.lists(st.floats() | st.integers(-(2**40), 2**40), min_size=1, max_size=4))
        column = pa.array(np.resize(figures, table.num_rows), from_pandas=False)
        with suppress(pa.ArrowException):
            column = column.cast(field.type, safe=False)
        table = table.set_column(number, field, column) if column.type == field.type else table
    elif kind == "missing":
        table = table.remove_column(number)
    elif kind == "twice":
        table = table.append_column(field, table.column(number))
    else:
        rows = draw(st.lists(st.integers(0, max(table.num_rows - 1, 0)), max_size=6)) if table.num_rows else []
        table = table.take(pa.array(rows, type=pa.int64()))
    out = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(schema.metadata), out)
    return out.getvalue().to_pybytes()


def with_changed_tensors(draw, content: bytes) -> bytes:
    """The head of safetensors has another size, other names, types, shapes or places."""
    (size,) = struct.unpack_from("<Q", content)
    head = with_changed_value(draw, content[8 : 8 + size])
    wrong = draw(st.sampled_from([0, 0, 0, 1, 2**62]))
    return struct.pack("<Q", len(head) + wrong) + head + content[8 + size :]


@st.composite
def spoilt(draw, files: dict[str, bytes]) -> tuple[str, bytes | None]:
    """A file's name and its spoilt contents; None if it is missing."""
    name = draw(st.sampled_from(sorted(files)))
    ways = [with_changed_bytes]
    if name.endswith(".json"):
        ways += [with_changed_value] * 4
    elif name.endswith(".parquet"):
        ways += [with_changed_table] * 4
    elif name.endswith(".safetensors"):
        ways += [with_changed_tensors] * 3
    if draw(st.integers(0, 15)) == 0:
        return name, None
    return name, draw(st.sampled_from(ways))(draw, files[name])


COMMANDS = {
    "finished": [
        ["report", "RUN"],
        ["report", "RUN", "--html", "-o", "OUT.html"],
        ["verify", "RUN"],
        ["timeline", "RUN", "--method", "fedavg", "-o", "OUT.json"],
        ["diagnose", "RUN"],
        ["replay", "RUN", "-o", "OUT", "--set", "network.topology.latency=10 ms"],
        ["simulate", "--resume", "RUN"],
    ],
    "interrupted": [["simulate", "--resume", "RUN"], ["report", "RUN"], ["verify", "RUN"]],
}


def holds(kind: str, number: int, runs: dict[str, dict[str, bytes]], capfd: Any) -> None:
    """Each of many spoilt run directories ends each command with an answer, or with one message."""

    @cases(number)
    @given(st.data())
    def each(data: st.DataObject) -> None:
        spoilt_name, spoilt_content = data.draw(spoilt(runs[kind]))
        command = data.draw(st.sampled_from(COMMANDS[kind]))
        with folder() as place:
            for name, content in {**runs[kind], spoilt_name: spoilt_content}.items():
                if content is None:
                    continue
                file = place / "run" / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            words = [word.replace("RUN", str(place / "run")).replace("OUT", str(place / "out")) for word in command]
            code = main(words)
            said = capfd.readouterr()
            about = f"{' '.join(command)} with another {spoilt_name}: {code}\n{said.err}"
            assert "fault:" not in said.err, about
            assert "Traceback" not in said.err, about
            assert code in ((0, 1, 2) if command[0] == "verify" else (0, 2)), about
            assert code != 2 or any(line.startswith("error: ") for line in said.err.splitlines()), about
            assert "\x1b" not in said.out + said.err, about

    each()


@pytest.mark.parametrize(("kind", "number"), [("finished", 100), ("interrupted", 30)])
def test_a_spoilt_run_directory_is_read_or_refused(kind, number, runs, capfd):
    holds(kind, number, runs, capfd)


@pytest.mark.slow
@pytest.mark.parametrize("kind", COMMANDS)
def test_many_spoilt_run_directories_are_read_or_refused(kind, runs, capfd):
    holds(kind, 2000, runs, capfd)
