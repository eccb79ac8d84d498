"""Sampled devices and rooflines."""

import csv
import functools
import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from edgefl.errors import UserError
from edgefl.fleet import FleetGroup, assign, fits, fleet_step_seconds, load_profile, step_seconds, value
from edgefl.fleet.assignment import QUANTILES, Sample, sampled_profiles
from edgefl.network.capacities.trace import TraceCapacity, traces_of


@dataclass(frozen=True)
class Work:
    flops: float
    bytes: float
    count: int = 1


works = st.builds(Work, st.floats(0, 1e12), st.floats(0, 1e10), st.integers(0, 50))


@pytest.mark.parametrize(("work", "seconds"), [(Work(2e9, 1e6), 1), (Work(1e6, 3e9), 3), (Work(0, 0, 1000), 999e-5)])
def test_an_operator_takes_its_arithmetic_or_its_traffic_and_its_launches(board, work, seconds):
    """At 2 GFLOP/s and 1 GB/s, with 10 us a launch and 1 ms a step."""
    assert step_seconds(board, [work]) == pytest.approx(seconds + 1e-5 + 1e-3, rel=1e-12)


def test_on_cuda_a_step_takes_little_more_than_the_larger_of_kernels_and_launches(board):
    gpu = board.model_copy(update={"kind": "jetson"})
    # a second of arithmetic beside 1000 launches of 10 us, and beside as many as take a second
    assert step_seconds(gpu, [Work(2e9, 0), Work(0, 0, 999)]) == pytest.approx(1 + 1e-3, rel=1e-4)
    assert step_seconds(gpu, [Work(2e9, 0), Work(0, 0, 99_999)]) == pytest.approx(2 ** (1 / 3) + 1e-3, rel=1e-9)
    assert step_seconds(gpu, []) == pytest.approx(1e-3)


@settings(max_examples=30)
@given(st.lists(works, max_size=8))
def test_the_sum_over_operators_equals_a_plain_loop(operators):
    profile = load_profile("raspberry-pi-4")
    rate, bandwidth, per_operator, per_step = profile.rates()
    expected = per_step
    for each in operators:
        for _ in range(each.count):
            expected += max(each.flops / rate, each.bytes / bandwidth) + per_operator
    assert step_seconds(profile, operators) == pytest.approx(expected, rel=1e-9)


@settings(max_examples=30)
@given(st.lists(works, max_size=8), works)
def test_more_work_never_takes_less_time_and_bounds_are_ordered(operators, more):
    profile = load_profile("jetson-nano")
    rounding = 1 - 1e-12  # another operator groups the sum in another way
    assert step_seconds(profile, [*operators, more]) >= step_seconds(profile, operators) * rounding
    low, nominal, high = (step_seconds(profile, operators, bound=bound) for bound in ("low", "nominal", "high"))
    assert low <= nominal <= high


def test_several_devices_at_once_equal_one_by_one(board):
    profiles = [board, load_profile("raspberry-pi-5"), load_profile("phone-flagship")]
    operators = [Work(1e9, 1e7, 3), Work(0, 1e8, 5)]
    expected = [step_seconds(profile, operators) for profile in profiles]
    assert fleet_step_seconds(profiles, operators).tolist() == pytest.approx(expected, rel=1e-12)
    assert fleet_step_seconds([], operators).shape == (0,)


@pytest.mark.parametrize("wrong", [Work(-1, 0), Work(0, float("nan"))])
def test_work_that_cannot_be_is_refused(board, wrong):
    with pytest.raises(ValueError, match="finite and not negative"):
        step_seconds(board, [wrong])


def test_a_job_fits_up_to_the_memory_usable_for_training(board):
    assert fits(board, 512 * 2**20)
    assert not fits(board, 512 * 2**20 + 1)


def test_the_ratio_of_two_devices_depends_on_the_work():
    slow, fast = load_profile("raspberry-pi-zero-2w"), load_profile("jetson-agx-orin")
    dense, small = [Work(1e11, 1e8)], [Work(1e3, 1e3, 300)]
    ratio = [step_seconds(slow, work) / step_seconds(fast, work) for work in (dense, small)]
    assert ratio[0] > 10 * ratio[1]


BASE = load_profile("phone-2019-flagship")


@functools.cache
def drawn(models, devices=1500):
    return sampled_profiles(BASE, Sample(models=models, devices=devices), np.random.default_rng(1))


@pytest.mark.parametrize(("models", "spread"), [("all", 16.9), pytest.param("recent", 6.3, marks=pytest.mark.full)])
def test_speeds_spread_as_the_benchmarks_scores(models, spread):
    speeds = np.array([value(profile.compute.fp32_achievable) for profile in drawn(models)])
    low, median, high = np.quantile(speeds, [0.05, 0.5, 0.95])
    assert high / low == pytest.approx(spread, rel=0.1)
    assert median == pytest.approx(value(BASE.compute.fp32_achievable), rel=0.05)


def test_compute_and_memory_are_drawn_together():
    profiles = drawn("all")
    ranks = spearmanr(
        [value(each.compute.fp32_achievable) for each in profiles], [each.memory.total for each in profiles]
    )
    # Rounding RAM to sizes that are sold ties ranks, which costs a little.
    assert ranks.statistic == pytest.approx(0.84, abs=0.04)
    assert {each.memory.total / 2**30 for each in profiles} <= {0.5, 1, 2, 3, 4, 6, 8, 12}


def test_every_sampled_device_is_a_valid_profile_with_a_name_of_its_own():
    profiles = drawn("all")[:50]
    assert len({each.name for each in profiles}) == 50
    for each in profiles:
        again = type(each).model_validate(each.model_dump(mode="json", exclude_none=True))
        assert again.compute == each.compute
        assert value(each.memory.training) / each.memory.total == pytest.approx(
            value(BASE.memory.training) / BASE.memory.total
        )


def test_the_shipped_quantiles_are_the_data_sets():
    if "EDGEFL_DATA" not in os.environ:
        pytest.skip("EDGEFL_DATA is not set: no quantiles to compare with")
    path = Path(os.environ["EDGEFL_DATA"], "traces", "derived", "ai_benchmark_2019_cpu_f_quantiles.csv")
    if not path.exists():
        pytest.skip(f"{path} is missing")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    for models, names in {
        "all": ("cpu_f_score_all", "ram_gb_all"),
        "recent": ("cpu_f_score_2018_2019", "ram_gb_2018_2019"),
    }.items():
        for numbers, name in zip(QUANTILES[models], names, strict=True):
            assert numbers == tuple(float(row[name]) for row in rows)


def test_a_sampled_group_shares_its_devices_evenly_and_keeps_its_link_and_rules():
    groups = [
        FleetGroup(profile=BASE.name, share=0.5, link="5g", sample={"kind": "phones", "devices": 10}, dropout=0.1),
        FleetGroup(profile="raspberry-pi-5", share=0.5, link="wifi"),
    ]
    fleet = assign(groups, 400, seed=3)
    assert np.bincount(fleet.group).tolist() == [20] * 10 + [200]
    assert fleet.links == ("5g",) * 10 + ("wifi",)
    assert fleet.dropout == (0.1,) * 10 + (0.0,)
    assert assign(groups, 400, seed=3).profiles == fleet.profiles
    assert assign(groups, 400, seed=4).profiles != fleet.profiles


CAPACITIES = {
    "432802": {"computation": 162.0, "communication": 5648.109619499134},
    "7": {"computation": 27.0, "communication": 912.5},
    "9": {"computation": 54.0, "communication": 20000},
}


def measured(folder, devices):
    (folder / "capacity.json").write_text(json.dumps(devices), encoding="utf-8")
    return {"kind": "fedscale", "file": str(folder / "capacity.json")}


@pytest.mark.parametrize("wrapped", [dict, lambda each: list(each.values())], ids=["mapping", "list"])
def test_a_fleet_of_fedscales_devices_has_their_speeds_and_their_links(tmp_path, wrapped):
    sample = measured(tmp_path, wrapped(CAPACITIES))
    fleet = assign([FleetGroup(profile="phone-mid-range", share=1, link="l", sample=sample)], 90, seed=0)
    base, work = load_profile("phone-mid-range"), [Work(1e12, 0.0)]
    ratios = sorted(step_seconds(each, work) / step_seconds(base, work) for each in fleet.profiles)
    assert ratios == pytest.approx([0.5, 1, 3], rel=1e-3)
    assert np.bincount(fleet.group).tolist() == [30] * 3
    assert {each.memory.total for each in fleet.profiles} == {base.memory.total}
    link = TraceCapacity(kind="trace", file=sample["file"], format="fedscale")
    rates = [trace.value(1e6) for trace in traces_of(link, "down").values()]
    assert rates == pytest.approx([5648.109619499134e3, 912.5e3, 20e6])


def test_a_family_of_models_is_chosen_by_name(tmp_path):
    rows = {str(row): {"computation": {"mobilenet": row + 1, "shufflenet": 9 - row}} for row in range(3)}
    sample = {**measured(tmp_path, rows), "devices": 2}
    speeds = Sample(**sample, family="shufflenet").milliseconds()
    assert list(speeds.values()) == [9, 8, 7]
    assert len(sampled_profiles(BASE, Sample(**sample, family="mobilenet"), np.random.default_rng(1))) == 2


@pytest.mark.parametrize(
    ("content", "family", "message"),
    [
        ("\x80\x04", None, "FedScale's pickle becomes JSON by: python -c"),
        ("{}", None, "expected a list or a mapping of devices"),
        ('{"3": {"computation": "27", "communication": 1}}', None, "3: expected {computation: milliseconds"),
        ('{"3": {"computation": 0, "communication": 1}}', None, "3: expected {computation: milliseconds"),
        ('{"3": {"computation": {"resnet": 1}}}', None, "3.computation: expected the family .*: resnet"),
        ('{"3": {"computation": {"resnet": 1}}}', "resnett", "did you mean 'resnet'"),
    ],
)
def test_a_wrong_file_of_devices_is_refused_with_its_field(tmp_path, small, content, family, message):
    (tmp_path / "capacity.json").write_text(content, encoding="latin-1")
    sample = {"kind": "fedscale", "file": str(tmp_path / "capacity.json"), "family": family}
    with pytest.raises(UserError, match=message) as caught:
        assign([FleetGroup(profile="phone-mid-range", share=1, link="l", sample=sample)], 9, seed=0)
    assert caught.value.field == "fleet.0.sample.file"
