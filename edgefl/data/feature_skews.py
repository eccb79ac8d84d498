"""Feature skews: transformations of inputs that differ from client to client."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.data.augment import augmented, turned
from edgefl.data.samples import Kind
from edgefl.options import Component

if TYPE_CHECKING:
    from torch import Tensor

Numbers = NDArray[np.float64]


class FeatureSkew(Component):
    """A transformation of each client's inputs (``data.feature_skew``); its fields are its options."""

    inputs: ClassVar[tuple[Kind, ...]]
    kind: str

    @abstractmethod
    def draw(self, clients: int, rng: np.random.Generator) -> Numbers:
        """The parameters of each client's transformation, ``[clients, parameters]``."""

    @abstractmethod
    def apply(self, inputs: Tensor, parameters: Tensor, rng: np.random.Generator) -> Tensor:
        """The transformed inputs ``[n, …]``, of one type and shape, given each client's float64 ``[n, parameters]``."""


class Noise(FeatureSkew):
    """Gaussian noise, drawn once for each sample; its standard deviation is σ·i/N for client i of N (from 1).

    Li et al., "Federated Learning on Non-IID Data Silos" (ICDE 2022), Section IV-B, as in their code; here noisy pixels
    are rounded to bytes and limited to their range.
    """

    inputs = ("images", "numbers")

    kind: Literal["noise"] = Field(default="noise", description="each client's inputs have noise of its strength")
    std: float = Field(gt=0, description="standard deviation of client N of N; client i (from 1) has i/N of it")

    def draw(self, clients: int, rng: np.random.Generator) -> Numbers:
        return self.std * np.arange(1, clients + 1)[:, None] / clients

    def apply(self, inputs: Tensor, parameters: Tensor, rng: np.random.Generator) -> Tensor:
        import torch

        noise = torch.from_numpy(rng.standard_normal(tuple(inputs.shape), dtype=np.float32))
        noise *= parameters[:, 0].float().view(-1, *[1] * (inputs.dim() - 1))
        if inputs.is_floating_point():
            return inputs + noise
        return noise.mul_(255).add_(inputs).round_().clamp_(0, 255).byte()


class Rotation(FeatureSkew):
    """Rotation by an angle that is uniform between ± ``degrees``, nearest pixel; outside the image is black."""

    inputs = ("images",)

    kind: Literal["rotation"] = Field(default="rotation", description="each client's images are rotated by its angle")
    degrees: float = Field(gt=0, le=180, description="largest angle in either direction")

    def draw(self, clients: int, rng: np.random.Generator) -> Numbers:
        return rng.uniform(-self.degrees, self.degrees, (clients, 1))

    def apply(self, inputs: Tensor, parameters: Tensor, rng: np.random.Generator) -> Tensor:
        import torch

        still = torch.zeros(3, len(inputs), dtype=torch.int64)
        return augmented(inputs, torch.cat([still, turned(parameters[:, 0].numpy())]))


AnyFeatureSkew = Annotated[Rotation | Noise, Field(discriminator="kind")]
