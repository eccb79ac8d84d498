"""Whatever stands in a scenario, a profile or a trace: it runs, or one message says what is wrong."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import pytest
import simpy
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from edgefl import shipped
from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.rerun.verify import verify
from edgefl.scenario import load_scenario, rehearse, with_overrides
from edgefl.scenario.writing import dump_yaml

from .conftest import BASE, spoilt_scenarios, spoilt_texts

PROFILE = shipped.files("device_profiles")["raspberry-pi-4"].read_text(encoding="utf-8")
TRACES = {
    "csv": "seconds,bits_per_second\n" + "\n".join(f"{second},{1e6 * (1 + second % 5)}" for second in range(20)) + "\n",
    "mahimahi": "\n".join(str(10 * number) for number in range(1, 40)) + "\n",
}
LONGEST = 30
"""Seconds after which a case whose clock stands still counts as hanging; most take milliseconds."""


def cases(number: int):
    """The same cases every time, in CI a number of them, in the slow suite many more."""
    return settings(
        max_examples=number,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def folder():
    path = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


class StillAdvancing(BaseException):
    """A world that is merely large: a bit a second under a link that changes every second takes its time."""


def clock(frame: FrameType | None) -> float | None:
    """Seconds that the world which runs there has reached; ``None`` where none runs."""
    while frame is not None:
        world = frame.f_locals.get("self")
        if isinstance(world, simpy.Environment):
            return world.now
        frame = frame.f_back
    return None


@contextmanager
def in_time():
    """Fail after ``LONGEST`` seconds, unless the world's clock has gone on during the second half of them."""
    readings: list[float | None] = []

    def look(number, frame):
        readings.append(clock(frame))
        if len(readings) == 1:
            return
        earlier, later = readings
        if earlier is not None and later is not None and later > earlier:
            raise StillAdvancing
        raise AssertionError(f"hangs for more than {LONGEST} s")

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, LONGEST / 2, LONGEST / 2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(("delay", "told"), [(0.0, AssertionError), (1e-3, StillAdvancing)])
def test_a_world_hangs_whose_clock_stands_still(monkeypatch, delay, told):
    monkeypatch.setattr(sys.modules[__name__], "LONGEST", 0.2)
    world = simpy.Environment()

    def for_ever():
        while True:
            yield world.timeout(delay)

    world.process(for_ever())
    with pytest.raises(told), in_time():
        world.run()


def held(path: Path, fields: list[str]) -> None:
    """Load, rehearse and run one round of a scenario file, or hear what is wrong with one of its fields."""
    out = path.parent / "run"
    before = sorted(path.parent.rglob("*"))
    with in_time():
        try:
            scenario = load_scenario(path)
            rehearse(scenario)
            run(with_overrides(scenario, {"training.rounds": 1}), out=out, train=False)
        except UserError as error:
            message = str(error)
            assert any(field in message for field in fields), message
            assert "pydantic" not in message
            assert sorted(path.parent.rglob("*")) == before, "something was left behind"
            return
        except StillAdvancing:
            return
        assert verify(out) == []


def scenario_holds(data) -> None:
    with folder() as place:
        path = place / "fuzzed.yaml"
        path.write_text(dump_yaml(data), encoding="utf-8")
        held(path, [*(str(key) for key in {**BASE, **data}), "fuzzed.yaml"])


def files_hold(profile: str, trace: str, form: str) -> None:
    with folder() as place:
        (place / "board.yaml").write_text(profile, encoding="utf-8", errors="replace")
        (place / "trace.txt").write_text(trace, encoding="utf-8", errors="replace")
        data = copy.deepcopy(BASE)
        data["fleet"][0]["profile"] = "./board.yaml"
        data["network"]["links"]["5g"]["down"] = {"kind": "trace", "file": "trace.txt", "format": form}
        data["network"]["links"]["5g"]["redraw"] = None
        (place / "fuzzed.yaml").write_text(dump_yaml(data), encoding="utf-8")
        held(place / "fuzzed.yaml", ["board.yaml", "trace.txt", "fleet", "network"])


PROFILES_AND_TRACES = st.sampled_from(sorted(TRACES)).flatmap(
    lambda form: st.one_of(
        st.tuples(spoilt_texts(PROFILE), st.just(TRACES[form]), st.just(form)),
        st.tuples(st.just(PROFILE), spoilt_texts(TRACES[form]), st.just(form)),
    )
)


@cases(500)
@given(spoilt_scenarios())
def test_a_spoilt_scenario_runs_or_says_what_is_wrong(data):
    scenario_holds(data)


@cases(300)
@given(PROFILES_AND_TRACES)
def test_a_spoilt_profile_or_trace_runs_or_says_what_is_wrong(files):
    files_hold(*files)


@pytest.mark.release
@cases(13_000)
@given(spoilt_scenarios())
def test_many_spoilt_scenarios_run_or_say_what_is_wrong(data):
    scenario_holds(data)


@pytest.mark.release
@cases(6_000)
@given(PROFILES_AND_TRACES)
def test_many_spoilt_profiles_and_traces_run_or_say_what_is_wrong(files):
    files_hold(*files)


def installed_command() -> list[str]:
    """The console command beside this interpreter; where edgefl isn't installed, what it would run."""
    beside = Path(sys.executable).with_name("edgefl")
    if beside.exists():
        return [str(beside)]
    return [sys.executable, "-c", "import sys; from edgefl.cli import main; sys.exit(main())"]


TOO_LONG = -1
"""Stands for the exit code of a process that was not waited for."""


def started(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """The command as a user starts it."""
    return subprocess.run(
        [*installed_command(), *arguments],
        capture_output=True, text=True, timeout=4 * LONGEST, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def copied(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """The command in a copy of this process, which has imported everything: most of a case is the start of torch."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = os.fork()
        if process == 0:
            code = 1
            try:
                torch.set_num_threads(1)  # a fork has none of the threads that this process may have used
                os.dup2(output.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
                code = main(arguments)
                sys.stdout.flush()
                sys.stderr.flush()
            except BaseException:  # noqa: BLE001  (what a process would print at its end)
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)
        patience = time.monotonic() + LONGEST
        while (status := os.waitpid(process, os.WNOHANG))[0] == 0:
            if time.monotonic() > patience:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                raise subprocess.TimeoutExpired(arguments, LONGEST)
            time.sleep(0.005)
        output.seek(0)
        errors.seek(0)
        told = output.read().decode(), errors.read().decode()
        return subprocess.CompletedProcess(arguments, os.waitstatus_to_exitcode(status[1]), *told)


def command_holds(command, data, place: Path) -> int:
    """One process on one scenario: its exit code, after a look at all that it said and left behind."""
    place.mkdir()
    path = place / "fuzzed.yaml"
    path.write_text(dump_yaml(data), encoding="utf-8")
    out = place / "run"
    try:
        done = command(["simulate", str(path), "--no-train", "--json", "--set", "training.rounds=1", "--out", str(out)])
    except subprocess.TimeoutExpired:
        return TOO_LONG
    told = f"{dump_yaml(data)}\n{done.stderr}"
    assert done.returncode in (0, 2), told
    assert "Traceback" not in done.stderr, told
    if done.returncode == 2:
        assert done.stderr.startswith("error: "), told
        assert done.stdout == "", told
        assert [each.name for each in place.iterdir()] == ["fuzzed.yaml"], told
    else:
        assert sorted(json.loads(done.stdout)["methods"]) == sorted(
            each.name for each in out.iterdir() if each.is_dir()
        ), told
        assert not (out / "unfinished.json").exists(), told
    return done.returncode


def through_the_command(number: int, tmp_path: Path, command, side_by_side: int) -> None:
    spoilt = []

    @cases(number)
    @given(spoilt_scenarios())
    def collect(data):
        spoilt.append(data)

    collect()
    assert len(spoilt) == number
    places = [tmp_path / str(index) for index in range(number)]
    with ThreadPoolExecutor(side_by_side) as threads:
        codes = list(threads.map(partial(command_holds, command), spoilt, places))
    for code, place in zip(codes, places, strict=True):
        if code == TOO_LONG:
            shutil.rmtree(place / "run", ignore_errors=True)
            held(place / "fuzzed.yaml", ["fuzzed.yaml"])  # here its clock can be read
        else:
            assert code == 2 or verify(place / "run") == [], place
        shutil.rmtree(place)
    assert {0, 2} <= set(codes), "cases of both kinds were meant"
    assert codes.count(TOO_LONG) <= max(1, number // 100)


def test_the_command_runs_a_spoilt_scenario_or_ends_with_2(tmp_path):
    through_the_command(60, tmp_path, started, os.cpu_count() or 1)


@pytest.mark.release
def test_the_command_runs_many_spoilt_scenarios_or_ends_with_2(tmp_path):
    through_the_command(1_000, tmp_path, copied, 1)
