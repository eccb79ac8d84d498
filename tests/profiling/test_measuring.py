"""Measuring this machine."""

import contextlib
import time

import numpy as np
import pytest
import torch

from edgefl.data.spec import data_set
from edgefl.errors import UserError
from edgefl.fleet import DeviceProfile, step_seconds
from edgefl.fleet.fitting import Rates, relative_errors
from edgefl.operator_kinds import KINDS
from edgefl.profiling import measurement as measuring
from edgefl.profiling import reading
from edgefl.profiling.measure_device.main import FORMAT, LEAST_CHAINS, LEAST_STEPS, VERSION, cases, needed
from edgefl.profiling.measure_device.steps import STEP
from edgefl.profiling.measure_device.timing import Case, time_cases
from edgefl.profiling.measured_profile import Unmeasured, fit_of, profile_data
from edgefl.profiling.measurement import HELD_OUT, measurement_of, measurement_under_quota, operators_of


@pytest.fixture(name="executed", scope="module")
def executed_fixture():
    """What each case executes."""
    return {name: operators_of(case) for name, case in cases().items()}


def invented_machine():
    """A processor that is three times as fast in wide convolutions as in narrow ones, and slow in grouped ones."""
    draws = np.random.default_rng(7)
    factor = {"wide": 2.0, "medium": 1.5, "narrow": 0.7, "thin": 0.4, "grouped": 0.2, "depthwise": 0.1}
    kinds = {}
    for kind in KINDS:
        width = next((factor[word] for word in kind.split("-") if word in factor), 1.0)
        kinds[kind] = (width * 20e9, 5e9 * float(draws.uniform(0.5, 2)), 15e-6)
    return Rates(20e9, 5e9, 15e-6, 1e-3, kinds)


def measured(executed, machine):
    """The file that the script would write on that machine."""
    return measurement_of(
        {
            "format": FORMAT,
            "version": VERSION,
            "machine": {
                "processor": "invented", "system": "none", "python": "3.9", "torch": "1.13", "threads": 1,
                "memory_bytes": 2**30, "peak_flops_per_second": 1e11,
            },
            "date": "2026-11-21",
            "cases": {
                name: {"seconds": machine.seconds(work), "spread": 1.0, "repetitions": 5}
                for name, work in executed.items()
            },
            "left_out": {},
        }
    )  # fmt: skip


@pytest.mark.full
def test_the_held_out_steps_of_an_invented_machine_are_predicted(executed):
    machine = invented_machine()
    measurement = measured(executed, machine)
    fit = fit_of(measurement)
    steps = [(step.operators(), machine.seconds(step.operators())) for step in HELD_OUT]
    errors = relative_errors(fit.rates, steps)
    assert np.mean(np.abs(errors)) < 0.06
    assert fit.misfit < 0.03
    profile = DeviceProfile.model_validate(profile_data(measurement, fit, Unmeasured("board", "sbc")))
    for operators, _ in steps:
        assert step_seconds(profile, operators) == pytest.approx(fit.rates.seconds(operators), rel=0.01)


@pytest.mark.full
def test_the_cases_cover_every_kind_that_the_held_out_steps_execute(executed):
    timed = {each.kind for work in executed.values() for each in work}
    for step in HELD_OUT:
        assert {each.kind for each in step.operators()} <= timed
    assert timed <= set(KINDS)


@pytest.mark.parametrize(
    "name", ["linear 64 on 8, backward", pytest.param("step of plain, batch 8", marks=pytest.mark.full)]
)
def test_a_case_executes_real_numbers_as_it_was_counted(name):
    result = cases()[name].prepare(lambda *shape: torch.full(shape, 0.01))()
    assert all(torch.isfinite(each).all() for each in (result if isinstance(result, tuple) else (result,)))
    assert sum(each.flops * each.count for each in operators_of(cases()[name])) > 0


def test_a_linear_layer_is_counted_by_its_formula():
    # Three products of 8 x 64 by 64 x 64, two FLOPs a multiply-accumulate.
    assert sum(each.flops * each.count for each in operators_of(cases()["linear 64 on 8"])) == 3 * 2 * 8 * 64 * 64


def test_what_does_not_fit_or_fails_is_left_out_with_its_reason():
    def broken(numbers):
        raise RuntimeError("can't allocate memory\nand so on")

    wanted = {
        "large": Case(lambda numbers: lambda: None, megabytes=1e9),
        "broken": Case(broken, megabytes=1),
        "fine": Case(lambda numbers: lambda: sum(range(100)), megabytes=1),
    }
    said = []
    timed, left_out = time_cases(wanted, 0.05, clock=time.perf_counter, say=said.append, rounds=2)
    assert set(timed) == {"fine"}
    assert "needs about 1000000000 MB" in left_out["large"]
    assert left_out["broken"] == "can't allocate memory"
    assert any(text.startswith("left out: large") for text in said)


class Device:
    """A device on which a run of each case takes a known number of seconds of an invented clock."""

    def __init__(self, seconds):
        self.time = 0.0
        self.runs = dict.fromkeys(seconds, 0)
        self.cases = {name: Case(lambda _, name=name: lambda: self.run(name), megabytes=1) for name in seconds}
        self.seconds = seconds
        self.said = []

    def run(self, name):
        self.time += self.seconds[name]
        self.runs[name] += 1

    def measure(self, seconds, needed):
        def now():
            return self.time

        return time_cases(self.cases, seconds, now, self.said.append, needed=needed, now=now)


COSTS = {"slow": 1.0, "needed": 0.5, "other": 0.25, "also needed": 2.0}


def test_in_little_time_what_a_fit_needs_comes_first_and_the_rest_is_left_out_with_a_message():
    device = Device(COSTS)
    timed, left_out = device.measure(3.0, ["needed", "also needed"])
    # One warm-up run and one that counts: 1 s and 4 s, so no time is left for the others and for further rounds.
    assert device.runs == {"slow": 0, "needed": 2, "other": 0, "also needed": 2}
    assert device.time == 5.0
    assert {name: timing.seconds for name, timing in timed.items()} == {"needed": 0.5, "also needed": 2.0}
    assert left_out == {"slow": "no time left", "other": "no time left"}
    assert device.said[0] == "left out: 2 of 4 cases, because no time is left; more are timed with more --seconds"


def test_with_a_minute_or_more_what_a_fit_needs_makes_no_difference():
    device, same = Device(COSTS), Device(COSTS)
    timed, left_out = device.measure(60.0, ["also needed"])
    assert (timed, left_out) == same.measure(60.0, [])
    assert device.runs == same.runs
    assert list(timed) == list(COSTS)
    # Two warm-up runs, and at least one that counts.
    assert min(device.runs.values()) >= 3


@pytest.mark.full
def test_the_needed_cases_are_enough_for_a_fit_and_of_every_family(executed):
    found = needed(cases())
    steps = [name for name in found if name.startswith(STEP)]
    chains = [name for name in found if not name.startswith(STEP)]
    assert len(steps) >= LEAST_STEPS
    assert LEAST_CHAINS <= len(chains) <= 2 * LEAST_CHAINS
    assert {name.split()[2] for name in steps} == {"plain,", "fire,", "inverted,", "residual,"}
    assert 0.3 < sum("backward" in name for name in chains) / len(chains) < 0.7
    assert {name.split()[0] for name in chains} >= {"convolution", "linear", "group", "batch"}
    machine = invented_machine()
    fit = fit_of(measured({name: executed[name] for name in found}, machine))
    assert fit.misfit < 0.2


def silent(text):
    pass


def test_times_on_the_processor_become_real_seconds(monkeypatch):
    quotas = []

    @contextlib.contextmanager
    def limited(processors):
        quotas.append(processors)
        yield

    def measurement(seconds, threads, say, wanted, least_block):
        assert threads == 1
        assert least_block == pytest.approx(4 * 0.3 * 0.05)  # four periods of 50 ms, each with 15 ms of running
        return {"cases": {"a": {"seconds": 0.5}}, "machine": {"peak_flops_per_second": 8e9}}

    monkeypatch.setattr(measuring, "limited", limited)
    monkeypatch.setattr(measuring.main, "measurement", measurement)
    real, used = iter([10.0, 18.0]), iter([1.0, 3.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(real))
    clock = lambda: next(used)  # noqa: E731
    monkeypatch.setattr(measuring, "clock_for", lambda threads: clock)
    monkeypatch.setattr(time, "process_time", clock)
    found = measurement_under_quota(0.3, 1.0, silent, {})
    # Eight real seconds for two on the processor.
    assert found["cases"]["a"]["seconds"] == 4 * 0.5
    assert found["machine"]["peak_flops_per_second"] == 8e9 / 4
    assert quotas == [0.3]


def test_a_clock_that_is_too_coarse_is_refused(monkeypatch):
    monkeypatch.setattr(measuring, "clock_for", lambda threads: time.perf_counter)
    with pytest.raises(UserError, match="exact clock"):
        measurement_under_quota(0.3, 1.0, silent, {})


def test_a_scenarios_samples_are_read_as_a_client_reads_them():
    loader = reading.loader_of("5g_100clients")
    images, labels = next(iter(loader))
    assert (images.shape, images.dtype, labels.shape) == ((32, 1, 28, 28), torch.float32, (32,))
    assert abs(images.mean()) < 0.5
    plain = reading.Stored(data_set({"name": "digits", "clients": 10}))
    flipped = reading.Stored(data_set({"name": "digits", "clients": 10, "augment": "rotate_crop_flip"}))
    assert (plain[3][0] == plain[3][0]).all()
    assert any((flipped[3][0] != flipped[3][0]).any() for _ in range(3))


def test_the_loader_of_a_function_is_timed_without_its_workers(tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    file.write_text(
        "import time\nimport torch\nfrom torch.utils.data import DataLoader\n"
        "class Slow(torch.utils.data.Dataset):\n"
        "    def __len__(self):\n        return 50\n"
        "    def __getitem__(self, index):\n        time.sleep(0.004)\n        return torch.ones(3), 0\n"
        "def make():\n    return DataLoader(Slow(), batch_size=5, num_workers=2)\n"
    )
    monkeypatch.setattr(reading, "BLOCK_SECONDS", 0.02)
    assert reading.reading_seconds(reading.loader_of(f"{file}:make"), 0.1) >= 0.004
    with pytest.raises(UserError, match="expected 'Slow' to return a DataLoader, found Slow"):
        reading.loader_of(f"{file}:Slow")
