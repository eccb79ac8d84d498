"""Second-order properties of the loss at one model, from Hessian-vector products."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vjp

from edgefl.methods.parts.objective import Batch
from edgefl.models.block_model import BlockModel
from edgefl.models.mode import using
from edgefl.randomness import generator
from edgefl.training.evaluation import PLAIN

ITERATIONS = 100
"""Maximum number of power iterations and of Rademacher probes, as in FedAlign's code."""
TOLERANCE = 1e-3
"""Relative change of the eigenvalue, or of the mean trace, at which both stop."""


Grid = np.ndarray[Any, np.dtype[np.float64]]


class Diagonal(NamedTuple):
    """Hutchinson's estimate of the Hessian's diagonal ``[parameter_count]``, from a number of probes."""

    values: Tensor
    probes: int

    @property
    def trace(self) -> float:
        """The estimate of the trace."""
        return float(self.values.double().sum())


@dataclass(frozen=True, eq=False)
class Curvature:
    """The Hessian of the mean cross-entropy with respect to a model's parameters, never formed as a matrix.

    ``vector`` has parameters and buffers ``[size]``; results have its type. Batches of equal size have equal weight;
    ``mode`` are the differences from a plain evaluation.
    """

    model: BlockModel
    vector: Tensor
    batches: Sequence[Batch]
    mode: Mapping[str, Any]

    @property
    def parameters(self) -> Tensor:
        """The point at which derivatives are computed ``[parameter_count]``."""
        return self.model.layout.split(self.vector)[0]

    def loss(self, parameters: Tensor) -> float:
        """The mean cross-entropy at other parameters, with the same buffers."""
        with torch.no_grad(), using(**{**PLAIN, **self.mode}):
            losses = [float(self._batch_loss(batch)(parameters)) for batch in self.batches]
        return float(np.mean(losses))

    def product(self, direction: Tensor) -> Tensor:
        """H v for a direction ``[parameter_count]``, by differentiating the gradient backwards (H is symmetric)."""
        total = torch.zeros_like(direction)
        with using(**{**PLAIN, **self.mode}):
            for batch in self.batches:
                pull = vjp(grad(self._batch_loss(batch)), self.parameters)[1]
                total += pull(direction)[0]
        return total / len(self.batches)

    def top_eigenvalue(self, seed: int = 0) -> float:
        """The eigenvalue of largest magnitude, by power iteration (Mendieta et al. 2022, Table 1)."""
        direction = self._draw(generator(seed, "power iteration").standard_normal(len(self.parameters)))
        direction /= direction.norm()
        last = None
        for _ in range(ITERATIONS):
            image = self.product(direction)
            value = float(direction.double() @ image.double())
            norm = image.norm()
            if not float(norm):
                return 0.0
            direction = image / norm
            if last is not None and abs(value - last) <= TOLERANCE * (abs(last) + 1e-6):
                return value
            last = value
        return value

    def diagonal(self, seed: int = 0) -> Diagonal:
        """Hutchinson's mean of v ⊙ H v over Rademacher probes v, until the trace converges.

        The probes are the same for all models of one seed, so that they do not cause differences between models.
        """
        total = torch.zeros_like(self.parameters)
        trace = 0.0
        for probe in range(ITERATIONS):
            signs = generator(seed, "hutchinson", probe).integers(0, 2, size=len(total))
            direction = self._draw(2.0 * signs - 1.0)
            total += direction * self.product(direction)
            mean = float(total.double().sum()) / (probe + 1)
            if probe and abs(mean - trace) <= TOLERANCE * (abs(trace) + 1e-6):
                break
            trace = mean
        return Diagonal(total / (probe + 1), probe + 1)

    def by_tensor(self, diagonal: Tensor) -> Tensor:
        """A diagonal ``[parameter_count]`` summed over each parameter tensor ``[tensors]``."""
        pieces = [diagonal[e.start : e.start + e.numel].sum() for e in self.model.layout.parameters]
        return torch.stack(pieces)

    def top_plane(self, seed: int = 0) -> tuple[Tensor, Tensor]:
        """The two largest eigenvalues ``[2]``, descending, and their orthonormal eigenvectors ``[2, parameter_count]``.

        Computed by scipy's Lanczos method on products with H.

        Raises:
            ValueError: the model has fewer than three parameters.
        """
        from scipy.sparse.linalg import LinearOperator, eigsh

        size = len(self.parameters)
        if size < 3:
            raise ValueError(f"expected a model with at least three parameters, found {size}")

        def product(direction: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            return self.product(self._draw(direction.reshape(-1))).double().cpu().numpy()

        start = generator(seed, "lanczos").standard_normal(size)
        operator = LinearOperator((size, size), matvec=product, dtype=np.float64)
        values, vectors = eigsh(operator, k=2, which="LA", v0=start, tol=TOLERANCE, ncv=min(size, 12))
        return self._draw(values[::-1].copy()), self._draw(vectors.T[::-1].copy())

    def _draw(self, numbers: np.ndarray[Any, Any]) -> Tensor:
        return torch.from_numpy(numbers).to(self.vector.device, self.vector.dtype)

    def _batch_loss(self, batch: Batch) -> Callable[[Tensor], Tensor]:
        layout = self.model.layout
        buffers = layout.split(self.vector)[1]
        inputs = batch.inputs.to(self.vector.dtype) if batch.inputs.is_floating_point() else batch.inputs

        def loss(parameters: Tensor) -> Tensor:
            outputs = self.model.apply_blocks(layout.weights(parameters, buffers), inputs)
            return self.model.task.mean_loss(outputs, batch.labels)

        return loss


@dataclass(frozen=True, eq=False)
class Landscape:
    """The loss at θ + x v_1 + y v_2, with unit eigenvectors v_1 and v_2 of ``eigenvalues``.

    ``steps`` are the values of x and of y ``[n]``; row i of ``losses [n, n]`` has y = ``steps[i]``.
    """

    steps: Grid
    losses: Grid
    eigenvalues: tuple[float, float]


def landscape(curvature: Curvature, *, radius: float = 1.0, points: int = 21, seed: int = 0) -> Landscape:
    """The loss on a square around a model, to ``radius`` in the norm of parameters, with ``points`` (odd) a side."""
    values, plane = curvature.top_plane(seed)
    steps = np.linspace(-radius, radius, points)
    centre = curvature.parameters
    losses = [[curvature.loss(centre + float(x) * plane[0] + float(y) * plane[1]) for x in steps] for y in steps]
    return Landscape(steps, np.array(losses), (float(values[0]), float(values[1])))
