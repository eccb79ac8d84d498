"""Settings of the process: neutral while edgefl computes, and the caller's afterwards."""

from __future__ import annotations

import gc
import io
import os
import signal
import subprocess
import sys
import threading
import warnings
from contextlib import suppress

import pytest
import torch

from edgefl.process_state import SETTINGS, process_state_kept
from edgefl.torch_settings import OF_A_THREAD, OF_THE_PROCESS, neutral, neutral_torch, set_to, settings

OTHERS = {
    "default_dtype": "float64",
    "deterministic": 1,
    "anomalies": (True, False),
    "products": "medium",
    "cudnn_tf32": False,
    "precision": "tf32",
    "cuda_products": "tf32",
    "cudnn_convolutions": "ieee",
    "cudnn_recurrences": "ieee",
    "mkldnn_precision": "bf16",
    "mkldnn_products": "bf16",
    "mkldnn_convolutions": "bf16",
    "mkldnn_recurrences": "bf16",
    "threads": 3,
    "autocast_cpu": (True, torch.bfloat16),
    "autocast_cuda": (True, torch.bfloat16),
}
"""A value other than the neutral one; switches are turned."""

TABLES = {name: family for family in (OF_THE_PROCESS, OF_A_THREAD) for name in family}


def other(name):
    return OTHERS.get(name, not TABLES[name][name].neutral)


def readings():
    return settings(OF_THE_PROCESS), settings(OF_A_THREAD)


@pytest.fixture(autouse=True)
def same_afterwards():
    before = readings()
    yield
    after = readings()
    for family, values in zip((OF_THE_PROCESS, OF_A_THREAD), before, strict=True):
        set_to(family, values)
    assert after == before


@pytest.mark.parametrize("name", TABLES)
def test_a_setting_is_neutral_inside_whatever_the_caller_set_and_the_callers_afterwards(name):
    family = TABLES[name]
    if name not in settings(family):
        pytest.skip("this version of PyTorch does not have it")
    before = settings(family)
    set_to(family, {name: other(name)})
    changed = settings(family)
    try:
        assert changed != before
        with neutral_torch():
            inside = settings(family)
            set_to(family, {name: other(name)})
            with neutral_torch():
                assert settings(family) == inside
            assert settings(family)[name] == other(name)
        assert settings(family) == changed
    finally:
        set_to(family, before)
    for each, value in neutral(family).items():
        if not each.startswith("autocast_c") and each in inside:
            assert inside[each] == value, each
    assert not any(inside[each][0] for each in inside if each in {"autocast_cpu", "autocast_cuda"})


CALLERS = {
    "without gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "anomalies": torch.autograd.detect_anomaly,
    "another device": lambda: torch.device("meta"),
    "other convolutions": lambda: torch.backends.mkldnn.flags(enabled=False),
}


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("state", CALLERS)
def test_a_callers_block_has_no_effect_inside_and_goes_on_afterwards(state):
    def computed():
        weight = torch.nn.Parameter(torch.ones(3, 3) / 3)
        product = weight @ torch.ones(3, 3)
        with suppress(RuntimeError):
            product.sum().backward()
        facts = product.dtype, product.device, weight.is_inference(), weight.grad is None
        return *facts, torch.is_anomaly_enabled(), bool(torch.backends.mkldnn.enabled)

    plain = computed()
    with CALLERS[state]():
        outside = computed()
        with neutral_torch():
            assert computed() == plain
        assert computed() == outside
    assert outside != plain
    assert computed() == plain


def test_a_default_device_of_the_caller_is_restored():
    torch.set_default_device("meta")
    try:
        with neutral_torch():
            assert torch.zeros(1).device.type == "cpu"
            torch.set_default_device("meta")
        assert torch.zeros(1).device.type == "meta"
    finally:
        torch.set_default_device(None)


def test_of_blocks_in_two_threads_the_last_restores_the_settings_of_the_process():
    entered, leave, found = threading.Event(), threading.Event(), []

    def second():
        with neutral_torch():
            entered.set()
            leave.wait(30)
            found.append(torch.get_default_dtype())

    torch.set_default_dtype(torch.float64)
    try:
        with neutral_torch():
            thread = threading.Thread(target=second)
            thread.start()
            assert entered.wait(30)
        found.append(torch.get_default_dtype())
        leave.set()
        thread.join()
        assert found == [torch.float32, torch.float32]
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


CHANGES = {
    "warning filters": warnings.simplefilter,
    "warnings": lambda _: setattr(warnings, "showwarning", print),
    "imports": lambda _: sys.path.insert(0, "/nowhere"),
    "uncaught errors": lambda _: setattr(sys, "excepthook", print),
    "uncaught errors of threads": lambda _: setattr(threading, "excepthook", print),
    "ignored errors": lambda _: setattr(sys, "unraisablehook", print),
    "recursion limit": lambda _: sys.setrecursionlimit(sys.getrecursionlimit() + 100),
    "switch interval": lambda _: sys.setswitchinterval(0.1),
    "garbage collection": lambda _: gc.disable(),
    "log": lambda _: __import__("logging").disable(50),
    "blocked signals": lambda _: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}),
    "signals": lambda _: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_the_interpreter_is_restored(name):
    before = SETTINGS[name].read()
    with process_state_kept():
        CHANGES[name]("ignore")
        assert SETTINGS[name].read() != before
    assert SETTINGS[name].read() == before


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_streams_are_open_and_in_place_afterwards(name, capfd):
    before = getattr(sys, name)
    with process_state_kept():
        lent = getattr(sys, name)
        lent.close()
        with suppress(AttributeError, io.UnsupportedOperation):
            lent.buffer.close()
        if name != "stdin":
            print("still open", file=lent)
        setattr(sys, name, io.StringIO())
        getattr(sys, name).close()
    assert getattr(sys, name) is before
    assert not before.closed
    if name != "stdin":
        assert "still open" in "".join(capfd.readouterr())


def test_what_the_block_changes_is_undone_and_what_other_threads_change_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOTH", "before")
    monkeypatch.setenv("GONE", "before")
    monkeypatch.delenv("MINE", raising=False)
    monkeypatch.delenv("THEIRS", raising=False)
    (tmp_path / "elsewhere").mkdir()

    def another_thread():
        os.environ.update(THEIRS="1", BOTH="theirs")

    with process_state_kept():
        os.environ.update(MINE="1", BOTH="mine")
        del os.environ["GONE"]
        os.chdir("elsewhere")
        thread = threading.Thread(target=another_thread)
        thread.start()
        thread.join()
    found = {name: os.environ.get(name) for name in ("MINE", "THEIRS", "BOTH", "GONE")}
    os.environ.pop("THEIRS")
    assert found == {"MINE": None, "THEIRS": "1", "BOTH": "theirs", "GONE": "before"}
    assert os.getcwd() == str(tmp_path)


@pytest.mark.parametrize("outer_changes", [False, True])
def test_a_block_in_a_block_restores_what_the_outer_one_had(tmp_path, monkeypatch, outer_changes):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NAME", "callers")
    with process_state_kept():
        if outer_changes:
            os.environ["NAME"] = "outer"
            os.chdir("/")
        had = os.environ["NAME"], os.getcwd()
        for _ in range(2):
            with process_state_kept():
                os.environ.clear()
                os.chdir(tmp_path.parent)
            assert (os.environ["NAME"], os.getcwd()) == had
    assert (os.environ["NAME"], os.getcwd()) == ("callers", str(tmp_path))


def test_another_threads_working_directory_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with process_state_kept():
        os.chdir("/")
        thread = threading.Thread(target=os.chdir, args=(tmp_path.parent,))
        thread.start()
        thread.join()
    assert os.getcwd() == str(tmp_path.parent)


def test_the_environment_is_never_empty_while_it_is_restored():
    program = """
import os, threading
from edgefl.process_state import process_state_kept
lost, stop = [], threading.Event()
def watch():
    while not stop.is_set():
        if "HOME" not in os.environ:
            lost.append(1)
thread = threading.Thread(target=watch); thread.start()
for _ in range(300):
    with process_state_kept():
        os.environ["MINE"] = "1"
stop.set(); thread.join()
assert not lost and "MINE" not in os.environ
"""
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "HOME": "/"}, timeout=60)


def test_a_working_directory_that_was_removed_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with process_state_kept():
        os.chdir(tmp_path)
    with process_state_kept():
        pass
