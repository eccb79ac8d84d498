"""Random crops, flips and rotations of a batch as one gather of bytes, computed in integers: equal on all devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor


Augmentation = Literal["none", "crop_flip", "rotate_crop_flip"]

PADDING = 4
"""Zero pixels around the image before the crop, so a crop shifts it by up to 4 pixels in each direction."""
MAXIMUM_DEGREES = 10.0
"""Maximum rotation; rotations are uniform between minus and plus this angle."""
_FRACTION_BITS = 14


def augment_draws(augment: Augmentation, rng: np.random.Generator, count: int) -> Tensor | None:
    """The random numbers that augment ``count`` images, int64 ``[3 or 5, count]``; ``None`` without augmentation.

    Rows are the shifts of the crop window down and right (-4 to 4), 1 to mirror, else 0, and those of :func:`turned`.
    """
    if augment == "none":
        return None
    import torch

    shifts = torch.from_numpy(rng.integers(-PADDING, PADDING + 1, size=(2, count)))
    flip = torch.from_numpy(rng.integers(0, 2, size=count))
    plain = torch.cat([shifts, flip[None]])
    if augment == "crop_flip":
        return plain
    return torch.cat([plain, turned(rng.uniform(-MAXIMUM_DEGREES, MAXIMUM_DEGREES, size=count))])


def turned(degrees: NDArray[np.float64]) -> Tensor:
    """Cosine and sine of rotations, as integers in units of 2⁻¹⁴, int64 ``[2, count]``."""
    import torch

    radians = np.deg2rad(degrees)
    return torch.from_numpy(np.rint(np.stack([np.cos(radians), np.sin(radians)]) * 2**_FRACTION_BITS).astype(np.int64))


def augmented(images: Tensor, draws: Tensor) -> Tensor:
    """Images ``[n, channels, height, width]``, rotated (counter-clockwise, nearest pixel), cropped and flipped."""
    import torch

    count, channels, height, width = images.shape
    device = images.device
    row = torch.arange(height, device=device).view(1, height, 1)
    column = torch.arange(width, device=device).view(1, 1, width)
    down, right, flip, *rotation = draws[..., None, None]
    # Map each target pixel back through flip, crop and rotation to its source.
    column = torch.where(flip == 1, width - 1 - column, column)
    source_row, source_column = row + down, column + right
    inside = _inside(source_row, height) & _inside(source_column, width)
    if rotation:
        cosine, sine = rotation
        # Twice the distance from the centre is an integer for even and odd sizes alike.
        twice_row, twice_column = 2 * source_row - (height - 1), 2 * source_column - (width - 1)
        source_row = _nearest(cosine * twice_row + sine * twice_column, height)
        source_column = _nearest(cosine * twice_column - sine * twice_row, width)
        inside = inside & _inside(source_row, height) & _inside(source_column, width)
    flat = source_row.clamp(0, height - 1) * width + source_column.clamp(0, width - 1)
    flat = flat.view(count, 1, height * width).expand(count, channels, height * width)
    moved = images.reshape(count, channels, height * width).gather(2, flat)
    return (moved * inside.view(count, 1, height * width)).view(count, channels, height, width)


def _inside(position: Tensor, size: int) -> Tensor:
    return (position >= 0) & (position < size)


def _nearest(twice_distance: Tensor, size: int) -> Tensor:
    """The pixel whose cell contains a point; ``twice_distance`` is from the centre, in units of 2⁻¹⁴ pixels."""
    # position = distance + (size - 1) / 2, and the cell of pixel p reaches from p - 1/2 to p + 1/2.
    return (twice_distance + (size << _FRACTION_BITS)) >> (_FRACTION_BITS + 1)


def uploaded(numbers: Tensor, device: torch.device | str) -> Tensor:
    """The numbers on a device; from pinned memory, so that the copy waits for none of the device's kernels."""
    import torch

    place = torch.device(device)
    if numbers.device.type == "cpu" and place.type == "cuda":
        return numbers.pin_memory().to(place, non_blocking=True)
    return numbers.to(place)
