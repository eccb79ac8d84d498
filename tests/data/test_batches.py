"""Batches and augmentation."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.transforms import functional as reference

from edgefl.data.augment import augment_draws, augmented
from edgefl.data.batches import batch_plan, fetch, job_batches
from edgefl.data.dataset import Dataset
from edgefl.methods.parts.local_options import LocalOptions


def images(count=50, channels=3, side=8):
    rng = np.random.default_rng(0)
    return Dataset(
        inputs=torch.from_numpy(rng.integers(0, 256, (count, channels, side, side), np.uint8)),
        labels=torch.from_numpy(rng.integers(0, 10, count)),
        classes=10,
        mean=(0.5, 0.4, 0.3)[:channels],
        std=(0.2, 0.25, 0.3)[:channels],
    )


@settings(max_examples=50)
@given(
    size=st.integers(1, 40),
    batch=st.integers(1, 12),
    accumulate=st.integers(1, 4),
    epochs=st.integers(1, 3),
    drop_last=st.booleans(),
)
def test_every_epoch_visits_every_image_once_but_for_a_dropped_rest(size, batch, accumulate, epochs, drop_last):
    shard = np.arange(100, 100 + size)
    options = LocalOptions(batch=batch, accumulate=accumulate, epochs=epochs, drop_last=drop_last)
    plan = batch_plan(shard, options, options.steps_for(size), seed=0, client=3, dispatch=1)
    assert len(plan) == options.steps_for(size)
    each = len(plan) // epochs
    for epoch in range(epochs):
        seen = np.concatenate(plan[epoch * each : (epoch + 1) * each])
        assert len(np.unique(seen)) == len(seen)
        assert set(seen) <= set(shard)
        dropped = size % batch if drop_last and size >= batch else 0
        assert len(seen) == size - dropped
        assert {len(part) for part in plan[epoch * each : (epoch + 1) * each - 1]} <= {batch * accumulate}


def test_steps_go_on_with_the_next_pass_and_begin_like_a_shorter_job():
    shard = np.arange(10)
    long = batch_plan(shard, LocalOptions(batch=4, steps=7), 7, seed=0, client=0, dispatch=0)
    assert [len(part) for part in long] == [4, 4, 2, 4, 4, 2, 4]
    short = batch_plan(shard, LocalOptions(batch=4, steps=2), 2, seed=0, client=0, dispatch=0)
    assert [part.tolist() for part in short] == [part.tolist() for part in long[:2]]
    assert [part.tolist() for part in long[:3]] != [part.tolist() for part in long[3:6]]


def test_batches_depend_on_seed_client_and_dispatch_and_on_nothing_else():
    def plan(**key):
        parts = batch_plan(np.arange(30), LocalOptions(batch=8), 4, **{"seed": 0, "client": 0, "dispatch": 0, **key})
        return np.concatenate(parts).tolist()

    assert plan() == plan()
    assert len({tuple(plan(**{name: value})) for name in ("seed", "client", "dispatch") for value in (0, 1)}) == 4


def test_inputs_are_pixels_over_255_less_the_mean_over_the_deviation():
    data = images()
    chosen = np.array([7, 7, 0])
    batch = fetch(data, chosen)
    for channel in range(3):
        expected = (data.inputs[chosen, channel].double() / 255 - data.mean[channel]) / data.std[channel]
        torch.testing.assert_close(batch.inputs[:, channel].double(), expected, rtol=0, atol=1e-6)
    assert batch.inputs.dtype == torch.float32
    assert batch.labels.tolist() == data.labels[chosen].tolist()


@pytest.mark.parametrize("augment", ["none", "rotate_crop_flip"])
def test_a_jobs_steps_are_its_plan_with_its_own_draws(augment):
    data = images()
    options = LocalOptions(batch=6)
    job = job_batches(data, augment, np.arange(5, 25), options, 5, seed=1, client=2, dispatch=3)
    plan = batch_plan(np.arange(5, 25), options, 5, seed=1, client=2, dispatch=3)
    assert len(job) == 5
    start = 0
    for step, positions in enumerate(plan):
        batch = job.step(step)
        pixels = data.inputs[positions]
        if job.draws is not None:
            pixels = augmented(pixels, job.draws[:, start : start + len(positions)])
        start += len(positions)
        unaugmented = Dataset(pixels, data.labels[positions], 10, data.mean, data.std)
        assert torch.equal(batch.inputs, fetch(unaugmented, np.arange(len(positions))).inputs)
        assert torch.equal(batch.labels, data.labels[positions])


@pytest.mark.parametrize(("augment", "size"), [("none", 1), ("rotate_crop_flip", 8), ("none", 48), ("none", 200)])
def test_steps_gathered_several_at_a_time_are_the_same_as_one_by_one(augment, size):
    # 1 MiB holds 9 images of 3x96x96: nine steps of 1, one step of 8, and less than one of 48.
    data = images(count=70, side=96)
    job = job_batches(data, augment, np.arange(70), LocalOptions(batch=size), 9, seed=0, client=0, dispatch=0)
    found = list(job.in_turn())
    assert len(found) == 9
    for step, batch in enumerate(found):
        assert torch.equal(batch.inputs, job.step(step).inputs)
        assert torch.equal(batch.labels, job.step(step).labels)


@pytest.mark.gpu
def test_a_gpu_makes_the_same_batches():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    data = images()
    arguments = ("rotate_crop_flip", np.arange(50), LocalOptions(batch=16), 4)
    here = job_batches(data, *arguments, seed=0, client=0, dispatch=0)
    there = job_batches(data.to("cuda"), *arguments, seed=0, client=0, dispatch=0)
    for step in range(4):
        torch.testing.assert_close(there.step(step).inputs.cpu(), here.step(step).inputs, rtol=0, atol=1e-6)
        assert torch.equal(there.step(step).labels.cpu(), here.step(step).labels)


@pytest.mark.parametrize("shape", [(7,), (5, 3), (2, 6, 6), (2, 3, 4, 5)])
def test_numbers_pass_unchanged_and_integers_as_tokens_whatever_their_shape(shape):
    rng = np.random.default_rng(0)
    numbers = torch.from_numpy(rng.standard_normal((20, *shape), np.float32) * 1000)
    for inputs, type in ((numbers, torch.float32), (numbers.short(), torch.int64), (numbers.int(), torch.int64)):
        data = Dataset(inputs, torch.arange(20), 20, (), ())
        batch = fetch(data, np.array([3, 1]))
        assert batch.inputs.dtype == type
        assert torch.equal(batch.inputs, inputs[[3, 1]].to(type))
        assert data.shape == shape


ONE = 2**14


def random_images(count, channels, height, width, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(1, 256, (count, channels, height, width), np.uint8))


@pytest.mark.parametrize("shape", [(3, 32, 32), (2, 5, 9)])
def test_a_crop_from_padding_and_a_flip_are_those_of_torchvision(shape):
    images = random_images(40, *shape)
    draws = augment_draws("crop_flip", np.random.default_rng(1), 40)
    ours = augmented(images, draws)
    assert ours.dtype == torch.uint8
    height, width = shape[1:]
    for index, image in enumerate(images):
        padded = reference.pad(image, 4)
        expected = reference.crop(padded, int(draws[0, index]) + 4, int(draws[1, index]) + 4, height, width)
        if draws[2, index]:
            expected = reference.hflip(expected)
        assert torch.equal(ours[index], expected)


def test_all_crops_and_both_flips_occur_equally_often():
    draws = augment_draws("crop_flip", np.random.default_rng(0), 90_000)
    for shift in draws[:2]:
        counts = torch.bincount(shift + 4)
        assert len(counts) == 9
        assert (counts - 10_000).abs().max() < 5 * np.sqrt(90_000 / 9)
    assert abs(int(draws[2].sum()) - 45_000) < 5 * np.sqrt(90_000 / 4)


@pytest.mark.parametrize(("height", "width"), [(8, 8), (7, 7)])
def test_a_quarter_turn_is_exact(height, width):
    images = random_images(1, 2, height, width)
    none = torch.zeros(1, dtype=torch.int64)
    quarter = torch.stack([none, none, none, none, none + ONE])
    assert torch.equal(augmented(images, quarter), torch.rot90(images, 1, dims=(2, 3)))
    unturned = torch.stack([none, none, none, none + ONE, none])
    assert torch.equal(augmented(images, unturned), images)


def test_rotations_are_those_of_torchvision_but_for_ties_between_pixels():
    images = random_images(60, 3, 32, 32)
    drawn = augment_draws("rotate_crop_flip", np.random.default_rng(2), 60)
    still = torch.zeros(3, 60, dtype=torch.int64)
    ours = augmented(images, torch.cat([still, drawn[3:]]))
    degrees = torch.rad2deg(torch.atan2(drawn[4].double(), drawn[3].double()))
    assert degrees.abs().max() <= 10.01
    assert degrees.abs().max() > 9
    expected = torch.stack(
        [reference.rotate(image, float(angle)) for image, angle in zip(images, degrees, strict=True)]
    )
    assert (ours == expected).float().mean() > 0.995


def test_rotation_comes_before_crop_and_flip():
    images = random_images(20, 1, 16, 16)
    draws = augment_draws("rotate_crop_flip", np.random.default_rng(3), 20)
    still = torch.zeros(3, 20, dtype=torch.int64)
    rotated = augmented(images, torch.cat([still, draws[3:]]))
    assert torch.equal(augmented(images, draws), augmented(rotated, draws[:3]))


def test_an_image_is_augmented_alike_alone_and_in_a_batch():
    images = random_images(5, 3, 12, 12)
    draws = augment_draws("rotate_crop_flip", np.random.default_rng(4), 5)
    together = augmented(images, draws)
    for index in range(5):
        assert torch.equal(
            augmented(images[index : index + 1], draws[:, index : index + 1]), together[index : index + 1]
        )
    assert augment_draws("none", np.random.default_rng(0), 5) is None
