"""The dissimilarity of the curvatures at clients' models: FedAlign's H_N and H_D."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Dissimilarity(NamedTuple):
    """Means over all pairs of clients, including each client with itself, as in the authors' code.

    Attributes:
        norm: H_N, the mean of ‖D_k - D_j‖; 0 for a client with itself, so K/(K-1) of it is the mean over true pairs.
        direction: H_D, the mean cosine of D_k and D_j; 1 for a client with itself.
        norm_pairs: H_N over true pairs.
        direction_pairs: H_D over true pairs.
    """

    norm: float
    direction: float
    norm_pairs: float
    direction_pairs: float


def dissimilarity(diagonals: Sequence[Tensor]) -> Dissimilarity:
    """H_N and H_D of K ≥ 2 diagonals D_k, vectors of one length (Mendieta et al. 2022, Eqs. 3-4).

    >>> dissimilarity([torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])]).direction
    0.5

    Raises:
        ValueError: fewer than two clients.
    """
    count = len(diagonals)
    if count < 2:
        raise ValueError(f"expected two clients or more, found {count}")
    rows = torch.stack([each.double() for each in diagonals])
    distances = (rows[:, None] - rows[None, :]).norm(dim=-1)
    lengths = rows.norm(dim=-1).clamp(min=1e-300)
    cosines = (rows @ rows.T) / (lengths[:, None] * lengths[None, :])
    norm, direction = float(distances.mean()), float(cosines.mean())
    share = count / (count - 1)
    return Dissimilarity(norm, direction, share * norm, (count * direction - 1) / (count - 1))
