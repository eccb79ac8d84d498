"""Whatever stands in a scenario, a profile or a trace: it runs, or one message says what is wrong."""

from __future__ import annotations

import copy
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from edgefl import shipped
from edgefl.errors import UserError
from edgefl.experiment import run, verify
from edgefl.scenario import load_scenario, rehearse, with_overrides
from edgefl.scenario.writing import dump_yaml

from .conftest import BASE, spoilt_scenarios, spoilt_texts

PROFILE = shipped.files("device_profiles")["raspberry-pi-4"].read_text(encoding="utf-8")
TRACES = {
    "csv": "seconds,bits_per_second\n" + "\n".join(f"{second},{1e6 * (1 + second % 5)}" for second in range(20)) + "\n",
    "mahimahi": "\n".join(str(10 * number) for number in range(1, 40)) + "\n",
}
LONGEST = 30
"""Seconds after which a case counts as hanging; most take milliseconds."""


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


@contextmanager
def in_time():
    def stop(number, frame):
        raise AssertionError(f"hangs for more than {LONGEST} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


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


@cases(700)
@given(spoilt_scenarios())
def test_a_spoilt_scenario_runs_or_says_what_is_wrong(data):
    scenario_holds(data)


@cases(300)
@given(PROFILES_AND_TRACES)
def test_a_spoilt_profile_or_trace_runs_or_says_what_is_wrong(files):
    files_hold(*files)


@pytest.mark.slow
@cases(14_000)
@given(spoilt_scenarios())
def test_many_spoilt_scenarios_run_or_say_what_is_wrong(data):
    scenario_holds(data)


@pytest.mark.slow
@cases(6_000)
@given(PROFILES_AND_TRACES)
def test_many_spoilt_profiles_and_traces_run_or_say_what_is_wrong(files):
    files_hold(*files)


def command_holds(data, place: Path) -> None:
    path = place / "fuzzed.yaml"
    path.write_text(dump_yaml(data), encoding="utf-8")
    arguments = [
        "simulate",
        str(path),
        "--no-train",
        "--json",
        "--set",
        "training.rounds=1",
        "--out",
        str(place / "run"),
    ]
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from edgefl.cli import main; sys.exit(main())", *arguments],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr
    if done.returncode == 2:
        assert done.stderr.startswith("error: "), done.stderr
        assert done.stdout == ""
        assert [each.name for each in place.iterdir()] == ["fuzzed.yaml"]


def through_the_command(number: int, tmp_path: Path) -> None:
    numbers = itertools.count()

    @cases(number)
    @given(spoilt_scenarios())
    def hold(data):
        place = tmp_path / str(next(numbers))
        place.mkdir()
        command_holds(data, place)

    hold()


def test_the_command_runs_a_spoilt_scenario_or_ends_with_2(tmp_path):
    through_the_command(40, tmp_path)


@pytest.mark.slow
def test_the_command_runs_many_spoilt_scenarios_or_ends_with_2(tmp_path):
    through_the_command(200, tmp_path)
