"""Who trains which part of a model: by declared capacity, memory, and seconds against a deadline."""

from types import SimpleNamespace

import numpy as np
import pytest

from edgefl.fleet import FleetAssignment, load_profile, step_seconds
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.submodels import Width
from edgefl.simulation.work import WorkModel

PROFILE = load_profile("raspberry-pi-4")
GB = 2**30


def step(alpha, batch, level, backend):
    """A step of 4, 2 or 1 GFLOP, which needs 4, 2 or 1 GB."""
    size = (4, 2, 1)[level]
    operator = SimpleNamespace(name="mm", flops=size * 1e9, bytes=0.0, count=1, kind="")
    return SimpleNamespace(operators=(operator,), training_flops=size * 1e9, peak_memory_bytes=size * GB)


def level(*, memory=100.0, capacity=(), deadline=None):
    profile = PROFILE.model_copy(update={"memory": PROFILE.memory.model_copy(update={"training": memory * GB})})
    fleet = FleetAssignment((profile,), ("wifi",), np.zeros(1, np.int32), capacity=capacity)
    width = Width(levels=(1.0, 0.5, 0.25), deadline=deadline)
    logged = []
    work = WorkModel(step, fleet, np.array([10]), LocalOptions(batch=10), logged.append, width)
    found = work.of(0, 4)
    assert logged == [found]
    assert work.level_of(0, 4) == found.level
    assert found.flops == (4e9, 2e9, 1e9)[found.level]
    return found.level, found.fits


SECONDS = [step_seconds(PROFILE, step(4, 10, place, None).operators) for place in range(3)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (0, True)),
        ({"memory": 3.0}, (1, True)),
        ({"memory": 1.5}, (2, True)),
        ({"memory": 0.5}, (2, False)),
        ({"capacity": (0.5,)}, (1, True)),
        ({"capacity": (0.49,)}, (2, True)),
        ({"capacity": (0.1,)}, (2, True)),
        ({"deadline": SECONDS[0]}, (0, True)),
        ({"deadline": SECONDS[0] * 0.99}, (1, True)),
        ({"deadline": SECONDS[1] * 0.99}, (2, True)),
        ({"deadline": SECONDS[2] * 0.99}, (2, True)),
        ({"memory": 1.5, "capacity": (0.5,), "deadline": SECONDS[0]}, (2, True)),
    ],
)
def test_a_client_gets_the_largest_level_that_is_declared_fits_and_is_in_time(options, expected):
    assert level(**options) == expected
