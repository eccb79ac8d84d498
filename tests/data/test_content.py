"""Sets are told apart by every array that they hold; large ones by evenly spread parts."""

from __future__ import annotations

import numpy as np
import pytest

from edgefl.data.dataset import content_of_samples
from edgefl.data.spec import Samples

PIXELS = Samples(np.arange(96, dtype=np.uint8).reshape(2, 3, 4, 4), np.array([0, 1]))


@pytest.mark.parametrize(
    "other",
    [
        PIXELS._replace(inputs=PIXELS.inputs[::-1]),
        PIXELS._replace(inputs=PIXELS.inputs.reshape(2, 3, 2, 8)),
        PIXELS._replace(inputs=np.where(PIXELS.inputs == 95, 94, PIXELS.inputs)),
        PIXELS._replace(labels=np.array([1, 0])),
        PIXELS._replace(owner=np.array([0, 1])),
        PIXELS._replace(classes=3),
    ],
)
def test_whatever_differs_is_found(other):
    assert content_of_samples(other, PIXELS) != content_of_samples(PIXELS, PIXELS)
    assert content_of_samples(PIXELS, other) != content_of_samples(PIXELS, PIXELS)


def test_equal_sets_have_one_content_however_they_lie_in_memory():
    turned = PIXELS._replace(inputs=np.asfortranarray(PIXELS.inputs))
    assert content_of_samples(turned) == content_of_samples(PIXELS._replace(inputs=PIXELS.inputs.copy()))
