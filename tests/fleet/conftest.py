import copy

import pytest

PROFILE = {
    "name": "board",
    "kind": "sbc",
    "description": "A board.",
    "compute": {
        "processor": "one core",
        "fp32_peak": "10 GFLOP/s",
        "fp32_achievable": {"low": "1 GFLOP/s", "nominal": "2 GFLOP/s", "high": "4 GFLOP/s"},
        "memory_bandwidth": "1 GB/s",
        "operator_overhead": "10 us",
        "step_overhead": "1 ms",
    },
    "memory": {"total": "1 GiB", "training": "512 MiB"},
    "power": {
        "idle": {"low": 1, "nominal": 2, "high": 3},
        "compute": "6 W",
        "radio": {
            "down": {"active": "500 mW", "energy_per_megabyte": "0.1 J"},
            "up": {"active": "1 W", "energy_per_megabyte": {"low": 0.3, "nominal": 0.6, "high": 0.9}},
        },
    },
    "provenance": {
        "sources": "a test",
        "date": "2026-11-21",
        "verified": False,
        "evidence": {"compute": {"kind": "measured", "source": "a test"}},
    },
}


@pytest.fixture
def profile_data():
    """A small valid profile as plain data, to be changed at will."""
    return copy.deepcopy(PROFILE)


@pytest.fixture
def board(profile_data):
    from edgefl.fleet import DeviceProfile

    return DeviceProfile.model_validate(profile_data)
