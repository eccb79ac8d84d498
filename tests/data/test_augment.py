import numpy as np
import pytest
import torch
from torchvision.transforms import functional as reference

from edgefl.data.augment import AugmentDraws, augment_draws, augmented

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
        expected = reference.crop(padded, int(draws.down[index]) + 4, int(draws.right[index]) + 4, height, width)
        if draws.flip[index]:
            expected = reference.hflip(expected)
        assert torch.equal(ours[index], expected)


def test_all_crops_and_both_flips_occur_equally_often():
    draws = augment_draws("crop_flip", np.random.default_rng(0), 90_000)
    for shift in (draws.down, draws.right):
        counts = torch.bincount(shift + 4)
        assert len(counts) == 9
        assert (counts - 10_000).abs().max() < 5 * np.sqrt(90_000 / 9)
    assert abs(int(draws.flip.sum()) - 45_000) < 5 * np.sqrt(90_000 / 4)


@pytest.mark.parametrize(("height", "width"), [(8, 8), (7, 7)])
def test_a_quarter_turn_is_exact(height, width):
    images = random_images(1, 2, height, width)
    none = torch.zeros(1, dtype=torch.int64)
    quarter = AugmentDraws(down=none, right=none, flip=none, cosine=none, sine=none + ONE)
    assert torch.equal(augmented(images, quarter), torch.rot90(images, 1, dims=(2, 3)))
    unturned = AugmentDraws(down=none, right=none, flip=none, cosine=none + ONE, sine=none)
    assert torch.equal(augmented(images, unturned), images)


def test_rotations_are_those_of_torchvision_but_for_ties_between_pixels():
    images = random_images(60, 3, 32, 32)
    drawn = augment_draws("rotate_crop_flip", np.random.default_rng(2), 60)
    still = torch.zeros(60, dtype=torch.int64)
    ours = augmented(images, drawn._replace(down=still, right=still, flip=still))
    degrees = torch.rad2deg(torch.atan2(drawn.sine.double(), drawn.cosine.double()))
    assert degrees.abs().max() <= 10.01
    assert degrees.abs().max() > 9
    expected = torch.stack(
        [reference.rotate(image, float(angle)) for image, angle in zip(images, degrees, strict=True)]
    )
    assert (ours == expected).float().mean() > 0.995


def test_rotation_comes_before_crop_and_flip():
    images = random_images(20, 1, 16, 16)
    draws = augment_draws("rotate_crop_flip", np.random.default_rng(3), 20)
    still = torch.zeros(20, dtype=torch.int64)
    rotated = augmented(images, draws._replace(down=still, right=still, flip=still))
    assert torch.equal(augmented(images, draws), augmented(rotated, draws._replace(cosine=None, sine=None)))


def test_an_image_is_augmented_alike_alone_and_in_a_batch():
    images = random_images(5, 3, 12, 12)
    draws = augment_draws("rotate_crop_flip", np.random.default_rng(4), 5)
    together = augmented(images, draws)
    for index in range(5):
        assert torch.equal(
            augmented(images[index : index + 1], draws.part(index, index + 1)), together[index : index + 1]
        )
    assert augment_draws("none", np.random.default_rng(0), 5) is None
