"""Figures that cannot be are refused wherever a received run directory is read."""

from __future__ import annotations

import copy
import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.record.tables import read_events
from edgefl.report.run_result import RunResult
from edgefl.rerun.verify import verify
from edgefl.scenario.loading import check

from ..small_runs import SMALL

IMPOSSIBLE = [-1.0, float("inf"), float("-inf"), float("nan")]
SHARES = ("accuracy", "accuracy_ema", "accuracy_ensemble")
AMOUNTS = ("seconds", "bytes_down", "bytes_up", "flops", "joules", "participants", "exposed_seconds", "staleness")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    data = copy.deepcopy(SMALL)
    data["training"]["rounds"] = 2
    data["budgets"] = {"seconds": 1.0}
    return run(check(data), out=tmp_path_factory.mktemp("forged") / "run")


@pytest.fixture
def copied(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def forge(file, name, value):
    table = pq.read_table(file)
    place = table.schema.get_field_index(name)
    kind = table.schema.field(name).type
    values = table[name].to_pylist()
    whole = pa.types.is_integer(kind)
    values[-1] = int(value) if whole else value
    pq.write_table(table.set_column(place, table.schema.field(name), pa.array(values, kind)), file)


def forgeries(shares, amounts, whole):
    for name in (*shares, *amounts):
        for value in [*IMPOSSIBLE, 2.5e300] if name in shares else IMPOSSIBLE:
            if not (name in whole and value != -1.0):
                yield name, value


ROUNDS = list(forgeries(SHARES, AMOUNTS, ("bytes_down", "bytes_up", "participants")))
EVENTS = list(forgeries((), ("time", "bytes", "seconds", "flops", "joules"), ("bytes",)))


@pytest.mark.parametrize(("name", "value"), ROUNDS)
def test_rounds_that_cannot_be_are_refused(copied, name, value):
    file = copied / "fedavg" / "seed-0" / "rounds.parquet"
    forge(file, name, value)
    with pytest.raises(UserError, match="in row 2") as refused:
        RunResult(copied).rounds_of("fedavg", 0)
    assert (refused.value.file, refused.value.field) == (str(file), name)


@pytest.mark.parametrize(("name", "value"), EVENTS)
def test_rows_of_a_log_that_cannot_be_are_refused(copied, name, value):
    file = copied / "fedavg" / "seed-0" / "events.parquet"
    forge(file, name, value)
    with pytest.raises(UserError) as refused:
        list(read_events(file))
    assert (refused.value.file, refused.value.field) == (str(file), name)
    assert verify(copied)


def leaves(data, path=()):
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else None
    if items is None:
        if isinstance(data, int | float) and not isinstance(data, bool):
            yield path
        return
    for key, value in items:
        yield from leaves(value, (*path, key))


NAMES = {"round", "client", "dispatch", "group", "alpha", "images", "flow", "critical_client"}
"""Whole numbers that name something; a table may have any."""
COMMANDS = {
    "rounds.parquet": ["report", "RUN", "--layout", "paper"],
    "events.parquet": ["timeline", "RUN", "--method", "fedavg", "--output", "OUT/trace.json"],
}


@pytest.mark.parametrize("file", COMMANDS)
def test_numbers_of_which_sums_are_not_finite_are_refused(copied, tmp_path, capsys, file):
    table = copied / "fedavg" / "seed-0" / file
    before, schema = table.read_bytes(), pq.read_schema(table)
    numbers = [each for each in schema if pa.types.is_integer(each.type) or pa.types.is_floating(each.type)]
    tried = [each for each in numbers if each.name not in NAMES | {"loss"} and not each.name.startswith("accuracy")]
    assert len(tried) > 5
    for column in tried:
        whole = pa.types.is_integer(column.type)
        highest = 2 ** (column.type.bit_width - 1) - 1 if whole else 1e308
        for value in [highest, -highest] if whole else [highest, -highest, float("inf"), float("nan")]:
            if value == 2**31 - 1:
                continue  # a count in four bytes has finite sums
            forge(table, column.name, value)
            assert (
                main([each.replace("RUN", str(copied)).replace("OUT", str(tmp_path)) for each in COMMANDS[file]]) == 2
            )
            message = capsys.readouterr().err
            assert message.startswith(f"error: {table}: {column.name}: expected a number from "), value
            assert message.count("\n") == 1
        assert main(["verify", str(copied)]) == 1
        assert capsys.readouterr().err == f"{copied}: 1 violation\n"
        table.write_bytes(before)


@pytest.mark.parametrize("value", [-1, "1e400", True])
def test_a_summary_that_cannot_be_is_refused(copied, value):
    """-1 is no figure of any kind, 1e400 none that a number holds, and true is none at all."""
    file = copied / "summary.json"
    summary = json.loads(file.read_text())
    entry = summary["methods"]["fedavg"][0]
    places = list(leaves(entry))
    assert len(places) > 15
    for *way, last in places:
        forged = copy.deepcopy(summary)
        part = forged["methods"]["fedavg"][0]
        for key in way:
            part = part[key]
        part[last] = "FORGED" if value == "1e400" else value
        file.write_text(json.dumps(forged).replace('"FORGED"', "1e400"))
        with pytest.raises(UserError) as refused:
            RunResult(copied)
        # A number beyond a float is refused by its line, before it belongs to a field.
        named = "found 1e400" if value == "1e400" else str(last)
        assert named in str(refused.value), (*way, last)


def test_an_accuracy_forged_in_every_file_is_refused_by_verify(copied):
    """All sums still hold then."""
    folder = copied / "fedavg" / "seed-0"
    events = pq.read_table(folder / "events.parquet")
    rows = events.to_pylist()
    for row in rows:
        if row["kind"] == "evaluation":
            row["value"] = 2.5
            row["detail"] = json.dumps({**json.loads(row["detail"]), "metric": 2.5, "ema": 2.5})
    pq.write_table(pa.Table.from_pylist(rows, schema=events.schema), folder / "events.parquet")
    assert any("is no value of accuracy" in violation for violation in verify(copied))
