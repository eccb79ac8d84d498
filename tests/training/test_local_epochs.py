import math

import pytest
import torch

from edgefl.methods.parts.local_options import LocalOptions
from edgefl.training.base import JobResult
from edgefl.training.losses import epoch_losses


def result(losses, sizes):
    return JobResult(torch.zeros(1), torch.tensor(losses), tuple(sizes))


def test_batches_count_by_their_images_in_the_first_and_the_last_epoch():
    # 5 images in batches of 2: three steps an epoch.
    losses = epoch_losses(
        result([1.0, 2.0, 6.0, 0.5, 1.0, 4.0], [2, 2, 1, 2, 2, 1]), LocalOptions(epochs=2, batch=2), 5
    )
    assert losses == pytest.approx(((2 + 4 + 6) / 5, (1 + 2 + 4) / 5))


def test_counted_steps_end_with_one_pass_worth_of_steps():
    losses = epoch_losses(result([1.0, 2.0, 3.0, 4.0, 5.0], [4] * 5), LocalOptions(steps=5, batch=4), 8)
    assert losses == (1.5, 4.5)


def test_a_job_shorter_than_an_epoch_is_one_epoch():
    assert epoch_losses(result([3.0, 1.0], [4, 4]), LocalOptions(steps=2, batch=4), 80) == (2.0, 2.0)


def test_with_drop_last_an_epoch_is_its_whole_batches():
    options = LocalOptions(epochs=2, batch=4, drop_last=True)
    assert epoch_losses(result([1.0, 3.0], [4, 4]), options, 7) == (1.0, 3.0)


def test_a_loss_that_is_not_finite_comes_through():
    losses = epoch_losses(result([math.inf, -math.inf, 1.0], [1, 1, 1]), LocalOptions(batch=1, epochs=3), 1)
    assert losses == (math.inf, 1.0)
    assert math.isnan(epoch_losses(result([math.inf, -math.inf], [1, 1]), LocalOptions(batch=1), 2)[1])
