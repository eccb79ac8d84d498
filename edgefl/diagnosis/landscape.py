"""The loss on the plane of the Hessian's two top eigenvectors (Mendieta et al. 2022, Fig. 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefl.diagnosis.curvature import Curvature

Grid = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Landscape:
    """The loss at θ + x v_1 + y v_2, with unit eigenvectors v_1 and v_2.

    Attributes:
        steps: the values of x, which are those of y ``[n]``.
        losses: ``[n, n]``; row i has y = ``steps[i]``, column j has x = ``steps[j]``.
        eigenvalues: the eigenvalues of v_1 and v_2.
    """

    steps: Grid
    losses: Grid
    eigenvalues: tuple[float, float]


def landscape(curvature: Curvature, *, radius: float = 1.0, points: int = 21, seed: int = 0) -> Landscape:
    """The loss around a model.

    Args:
        curvature: the model and its batches.
        radius: extent of the plane from the model, in the norm of parameters.
        points: values along each side; odd, so that the model itself is one of them.
        seed: determines the start of the search for eigenvectors.
    """
    values, plane = curvature.top_plane(seed)
    steps = np.linspace(-radius, radius, points)
    centre = curvature.parameters
    losses = [[curvature.loss(centre + float(x) * plane[0] + float(y) * plane[1]) for x in steps] for y in steps]
    return Landscape(steps, np.array(losses), (float(values[0]), float(values[1])))
