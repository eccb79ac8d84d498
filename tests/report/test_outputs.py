"""An output never replaces a file of a run, a file of a sweep or an input."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgefl.cli.entry import main
from edgefl.errors import UserError
from edgefl.record import names
from edgefl.record.paths import INPUT_ENDINGS, output_path

OPTIONS = {
    "a report": ["report", "RUN", "-o"],
    "a page": ["report", "RUN", "--html"],
    "a trace": ["timeline", "RUN", "--method", "fedavg", "-o"],
    "a landscape": ["diagnose", "RUN", "--landscape"],
    "a profile": ["profile", "fit", "RUN/costs.json", "-o"],
}


def own_files(run):
    """Every file of a run, and every name that a run directory may hold while it is in progress."""
    seed = run / "fedavg" / "seed-0"
    yield from (path for path in run.rglob("*") if path.is_file())
    yield from (run / name for name in names.FILES)
    yield from (seed / name for name in names.SEED_FILES)


def test_no_output_replaces_a_file_of_a_run(small_run, capsys):
    run = small_run.path
    for path in own_files(run):
        with pytest.raises(UserError, match=r"edgefl keeps this file itself|are inputs"):
            output_path(path)
    summary = (run / "summary.json").read_bytes()
    for option in OPTIONS.values():
        assert main([*(part.replace("RUN", str(run)) for part in option), str(run / "summary.json")]) == 2
        message = capsys.readouterr().err
        assert message.startswith(f"error: {run / 'summary.json'}: ")
        assert message.count("\n") == 1
    assert (run / "summary.json").read_bytes() == summary


def test_a_sweeps_table_and_an_input_are_not_replaced(tmp_path):
    (tmp_path / names.SWEEP).write_text("{}")
    for name in (*names.IN_A_SWEEP, *(f"mine{ending}" for ending in INPUT_ENDINGS)):
        (tmp_path / name).touch()
        with pytest.raises(UserError, match=r"edgefl keeps this file itself|are inputs"):
            output_path(tmp_path / name)


def test_names_of_a_run_are_free_elsewhere(tmp_path):
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "sub").mkdir()
    for name in ("summary.json", "costs.json", "sub/accuracy.png", "sweep.json"):
        assert output_path(tmp_path / name) == tmp_path / name


@pytest.mark.parametrize(
    ("command", "name", "reason"),
    [
        (["data", "show", "nothing.yaml", "-o"], "no/x.png", "its folder does not exist"),
        (["timeline", "nothing", "--png"], "x.exe", "found 'exe'"),
    ],
)
def test_a_wrong_output_is_refused_before_anything_is_read(command, name, reason, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*command, name]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"error: {name}: cannot be written: ")
    assert reason in message


def test_an_output_of_ones_own_may_be_replaced(small_run, tmp_path):
    for _ in range(2):
        assert main(["report", str(small_run.path), "-o", str(tmp_path / "mine.txt")]) == 0
    assert "fedadc" in (tmp_path / "mine.txt").read_text()


UNITS = {"seconds": "s", "bytes_down": "B", "bytes_up": "B", "flops": "FLOP", "joules": "J", "exposed_seconds": "s"}
WHOLE = {"round": "int32", "bytes_down": "int64", "bytes_up": "int64", "participants": "int32", "aggregated": "int32"}


@pytest.fixture(scope="module")
def path(small_run):
    return small_run.path / "fedavg" / "seed-0" / "rounds.parquet"


def library(name):
    return pytest.importorskip(name, reason=f"{name} is not installed; a run's tables do not need it")


def test_columns_have_types_and_units_in_their_metadata(path):
    schema = pq.read_schema(path)
    for name in schema.names:
        assert schema.field(name).metadata[b"meaning"], name
    assert {name: schema.field(name).metadata[b"unit"].decode() for name in UNITS} == UNITS
    assert {name: str(schema.field(name).type) for name in WHOLE} == WHOLE
    assert schema.field("accuracy").type == pa.float64()


def test_the_result_in_python_has_rounds_summary_a_picture_and_a_notebooks_form(small_run):
    library("pandas")
    frame = small_run.rounds.to_pandas()
    assert set(frame["label"]) == set(small_run.labels)
    assert len(frame) == sum(result.rounds for results in small_run.results.values() for result in results)
    assert small_run.summary["methods"]["fedavg"][0]["seed"] == 0
    assert len(small_run.plot().axes) >= 2
    assert small_run._repr_png_() == small_run.plot()._repr_png_()
    shown = small_run._repr_html_()
    assert all(label in shown for label in small_run.labels)
