"""Nothing in the package writes a file otherwise than through ``edgefl.durable_file``, but for what is listed here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "edgefl"

WRITERS = {
    *(
        "write_text",
        "write_bytes",
        "touch",
        "truncate",
        "mkdir",
        "makedirs",
        "mkstemp",
        "mkdtemp",
        "NamedTemporaryFile",
    ),
    *("copyfile", "copy2", "copytree", "move", "rename", "symlink", "symlink_to", "hardlink_to", "extractall"),
    *(
        "save",
        "save_file",
        "serialize_file",
        "savefig",
        "savez",
        "savetxt",
        "to_file",
        "tofile",
        "to_csv",
        "to_parquet",
    ),
    *("write_table", "ParquetWriter", "OSFile", "EventFileWriter", "create_archive", "write_html", "write_image"),
}
"""Calls that make or write files, of Python and of the libraries that the package uses."""

EXCEPTIONS = {
    ("durable_file.py", "open"): "is the one place",
    ("durable_file.py", "fdopen"): "is the one place",
    ("durable_file.py", "mkdir"): "is the one place",
    ("durable_file.py", "rename"): "is the one place",
    ("durable_file.py", "os.replace"): "is the one place",
    ("cli/streams.py", "open"): "the null device, for what nobody reads",
    ("experiment/folder_lock.py", "open"): "the lock, which holds nothing",
    ("experiment/folder_lock.py", "mkdir"): "notes the folders that it makes, and flushes each",
    ("record/tables.py", "ParquetWriter"): "pyarrow writes into a durable file",
    ("record/tables.py", "write_table"): "pyarrow writes into memory, or into a durable file",
    ("report/figure_file.py", "savefig"): "matplotlib draws into an open file",
    ("report/tensorboard.py", "EventFileWriter"): "TensorBoard's own writer, which appends",
    ("training/parallel/shared_buffer.py", "mkstemp"): "memory that processes share, without a name",
    ("training/parallel/shared_buffer.py", "open"): "memory that processes share, without a name",
    ("cpu_quota.py", "mkdir"): "a control group of the kernel",
    ("cpu_quota.py", "write_text"): "control groups of the kernel",
    ("emulation/delay_line.py", "open"): "a device of the kernel",
    ("emulation/real_links.py", "open"): "messages of processes, in a folder that ends with the emulation",
    ("emulation/real_links.py", "write_bytes"): "bytes to send, in a folder that ends with the emulation",
    ("emulation/trainers.py", "open"): "messages of processes, in a folder that ends with the emulation",
    ("emulation/namespaces.py", "write_text"): "parameters of the kernel",
    ("training/result_memory.py", "save"): "gives bytes",
    ("experiment/models.py", "save"): "gives bytes",
    ("experiment/checkpoints.py", "save"): "gives bytes",
    ("training/result_memory.py", "write_bytes"): "can be trained again; a digest tells whether it is whole",
    ("training/result_memory.py", "mkdir"): "holds what can be trained again",
    ("data/sets/tiny_imagenet.py", "extractall"): "the images are counted when they are read",
    ("sweep/over_ray.py", "touch"): "a sign for workers, which holds nothing",
    ("benchmarks/peak_memory.py", "write_text"): "a counter of the system, not a file",
    ("profiling/archive.py", "mkdir"): "within a temporary folder",
    ("profiling/archive.py", "write_bytes"): "within a temporary folder",
    ("profiling/archive.py", "create_archive"): "zipapp writes into an open file",
    ("profiling/measure_device/main.py", "open"): "runs without edgefl: writes aside and renames by itself",
    ("profiling/measure_device/main.py", "os.replace"): "runs without edgefl",
}
"""By module and call, with the reason."""


def opens_for_writing(call: ast.Call) -> bool:
    """A mode other than a constant for reading counts as one for writing."""
    given = [*call.args, *(each.value for each in call.keywords if each.arg == "mode")]
    if "O_" in ast.unparse(call):
        return any(flag in ast.unparse(call) for flag in ("O_CREAT", "O_WRONLY", "O_RDWR"))
    modes = [each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return any(set("wax+") & set(mode) and set(mode) <= set("rwaxbt+") for mode in modes)


def writes(source: str) -> Iterator[tuple[str, int]]:
    """Calls in a module that write files, by name and line."""
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call):
            continue
        words = ast.unparse(call.func)
        name = words.rpartition(".")[2]
        if name in WRITERS or (name in {"open", "fdopen"} and opens_for_writing(call)):
            yield name, call.lineno
        elif words in {"os.replace", "os.link", "shutil.copy"}:
            yield words, call.lineno
        elif name == "replace" and len(call.args) == 1 and not call.keywords:  # of a path; a text's has two arguments
            yield name, call.lineno


def found() -> dict[tuple[str, str], list[int]]:
    places: dict[tuple[str, str], list[int]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for name, line in writes(path.read_text(encoding="utf-8")):
            places.setdefault((path.relative_to(PACKAGE).as_posix(), name), []).append(line)
    return places


def test_every_file_is_written_durably():
    unknown = {place: lines for place, lines in found().items() if place not in EXCEPTIONS}
    assert unknown == {}, "write it with edgefl.durable_file, or say here why not"


def test_no_exception_is_out_of_date():
    assert set(EXCEPTIONS) <= set(found())


@pytest.mark.parametrize(
    "source",
    [
        "path.write_text('x')",
        "open(name, 'w')",
        "path.open('wb')",
        "path.open(mode='a')",
        "os.open(name, os.O_CREAT | os.O_WRONLY)",
        "figure.savefig(path)",
        "torch.save(model, path)",
        "unfinished.replace(path)",
        "os.replace(a, b)",
        "pq.write_table(table, path)",
    ],
)
def test_the_usual_ways_to_write_are_seen(source):
    assert len(list(writes(source))) == 1


@pytest.mark.parametrize("source", ["path.open('rb')", "open(name)", "text.replace('a', 'b')", "json.dumps(x)"])
def test_what_only_reads_is_not(source):
    assert list(writes(source)) == []
