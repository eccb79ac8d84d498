"""Sampled fleets: quantiles and rank correlation against the benchmark's statistics."""

import csv
import functools
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from edgefl.fleet import FleetGroup, assign, load_profile, value
from edgefl.fleet.assignment import QUANTILES, Sample, sampled_profiles

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
