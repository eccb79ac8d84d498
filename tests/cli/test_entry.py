"""The program: exit codes, faults, signals, and how little is imported before a command runs."""

import os
import signal
import subprocess
import sys
import time

import pytest

import edgefl
import edgefl.rerun.verify
from edgefl.cli import main
from edgefl.report.progress import Progress
from edgefl.yaml_file import dump_yaml

from ..small_runs import SMALL

HEAVY = ("torch", "numpy", "scipy", "sklearn", "matplotlib", "pyarrow", "pydantic", "simpy", "ruamel",
         "edgefl.scenario", "edgefl.training", "edgefl.experiment")  # fmt: skip


@pytest.fixture
def failing(monkeypatch):
    """Makes ``edgefl verify`` do something else."""

    def make(action):
        monkeypatch.setattr(edgefl.rerun.verify, "verify", lambda path, trust: action(path))

    return make


def test_the_version_and_the_help_are_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"edgefl {edgefl.__version__}\n"
    assert main(["--help"]) == 0
    helped = capsys.readouterr().out
    assert all(command in helped for command in ("simulate", "scenario", "verify", "methods", "models", "datasets"))
    assert main([]) == 0
    assert "simulate" in capsys.readouterr().out


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from edgefl.cli import main; code = main(['--help']); "
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_a_fault_is_one_line_and_exit_code_1(capsys, failing, tmp_path):
    def fail(path):
        raise RuntimeError("the flux\ncapacitor")

    failing(fail)
    assert main(["verify", str(tmp_path)]) == 1
    message = capsys.readouterr().err
    assert message.startswith("fault: RuntimeError: the flux capacitor (")
    assert message.count("\n") == 1
    assert "EDGEFL_TRACEBACK=1" in message


@pytest.mark.parametrize("way", ["option", "environment"])
def test_a_faults_traceback_is_shown_on_demand(capsys, failing, tmp_path, monkeypatch, way):
    failing(lambda path: 1 / 0)
    if way == "environment":
        monkeypatch.setenv("EDGEFL_TRACEBACK", "1")
    assert main([*(["--traceback"] if way == "option" else []), "verify", str(tmp_path)]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_unwinds_the_command_and_shows_in_the_exit_code(capsys, failing, tmp_path, number, code):
    unwound = []

    def wait(path):
        try:
            os.kill(os.getpid(), number)
            time.sleep(10)
        finally:
            unwound.append(path)

    failing(wait)
    before = signal.getsignal(number)
    assert main(["verify", str(tmp_path)]) == code
    assert unwound == [tmp_path]
    assert signal.getsignal(number) is before
    assert signal.Signals(number).name in capsys.readouterr().err


def test_a_stopped_run_says_so_first_and_then_how_to_go_on(capsys, monkeypatch, tmp_path):
    def stop(*_):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    monkeypatch.setattr(Progress, "round_ended", stop)
    folder = tmp_path / "run"
    (tmp_path / "small.yaml").write_text(dump_yaml(SMALL))
    assert main(["simulate", str(tmp_path / "small.yaml"), "--no-train", "--out", str(folder)]) == 143
    fact, advice = capsys.readouterr().err.splitlines()[-2:]
    assert "SIGTERM" in fact
    assert advice.endswith(f"edgefl simulate --resume {folder}")
    monkeypatch.undo()
    assert main(["simulate", "--resume", str(folder)]) == 0


def test_verify_says_what_is_broken_and_exits_with_1(capsys, failing, tmp_path):
    failing(lambda path: ["time goes back in row 7"])
    assert main(["verify", str(tmp_path)]) == 1
    assert capsys.readouterr().out == "time goes back in row 7\n"


def test_the_package_lists_its_public_names_and_loads_them_when_used():
    assert set(edgefl.__all__) <= set(dir(edgefl))
    for name in edgefl.__all__:
        assert getattr(edgefl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        edgefl.simulat  # noqa: B018
