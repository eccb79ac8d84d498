"""The machine that emulates, and its temporary folder."""

import os
import subprocess
import sys
import tempfile

import pytest

from edgefl.emulation import machine
from edgefl.emulation.emulate import temporary_folder
from edgefl.emulation.machine import Finding, check, in_namespaces, missing


@pytest.fixture
def forgotten():
    in_namespaces.cache_clear()
    yield
    in_namespaces.cache_clear()


def test_without_its_programs_a_machine_makes_no_links(monkeypatch, tmp_path, forgotten):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine, "_SYSTEM_FOLDERS", ())
    found = check()
    assert in_namespaces() is None
    assert {each.what for each in found if not each.works} >= {"ip", "tc", "unshare", "namespaces"}
    sentence = missing(found)
    assert sentence.startswith("this machine cannot make real links: ip: not found; part of the package iproute2; tc:")


def test_the_systems_own_programs_are_found_where_a_shell_leaves_out_their_folder(monkeypatch, tmp_path, forgotten):
    folder = tmp_path / "sbin"
    folder.mkdir()
    for program in ("ip", "tc", "unshare"):
        (folder / program).write_text("#!/bin/sh\n")
        (folder / program).chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(machine, "_SYSTEM_FOLDERS", (str(folder),))
    found = {each.what: each.detail for each in check()}
    assert found["tc"] == str(folder / "tc")


def test_a_refused_namespace_is_given_with_the_systems_words(monkeypatch, tmp_path, forgotten):
    refusing = tmp_path / "unshare"
    refusing.write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    (finding,) = [each for each in check() if each.what == "namespaces"]
    assert (finding.works, finding.detail) == (False, "unshare: unshare failed: Operation not permitted")


@pytest.mark.parametrize("delays", [("netem",), ("tun",)])
def test_latencies_need_netem_or_tun(delays):
    found = [Finding(what, what in delays, "detail", needed=False) for what in ("netem", "tun")]
    assert missing(found) is None
    none = [Finding(what, False, "not here", needed=False) for what in ("netem", "tun")]
    assert "latencies need netem or tun, netem: not here and tun: not here" in missing(none)


@pytest.mark.parametrize("module", ["links", "delay_line"])
def test_what_runs_next_to_the_nodes_imports_no_large_library(module):
    script = f"import sys, edgefl.emulation.{module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numpy", "simpy", "networkx", "pydantic"} & set(loaded)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_folder_is_removed_at_the_end_also_by_an_error(place):
    def failing() -> None:
        with temporary_folder() as folder:
            (folder / "file").touch()
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert list(place.iterdir()) == []


def test_what_a_dead_process_left_is_removed_and_nothing_else(place):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = place / f"edgefl-emulation-{dead.pid}-abc"
    alive = place / f"edgefl-emulation-{os.getppid()}-abc"
    other = place / "edgefl-emulation-notes"
    for folder in (left, alive, other):
        (folder / "inner").mkdir(parents=True)
    with temporary_folder():
        pass
    assert not left.exists()
    assert (alive / "inner").exists()
    assert (other / "inner").exists()
