"""The F1 score from counts that add up over samples."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgefl.record.metric import Metric

MACRO_F1 = Metric("macro_f1", title="macro-F1")


def f1_counts(predicted: Tensor, true: Tensor) -> Tensor:
    """True positives, false positives and false negatives of each label ``[batch, 3 * labels]``, float64.

    Args:
        predicted: bool ``[batch, labels]``.
        true: bool ``[batch, labels]``.
    """
    return torch.cat([predicted & true, predicted & ~true, ~predicted & true], dim=1).double()


def macro_f1(sums: NDArray[np.float64]) -> float:
    """The mean of 2 TP/(2 TP + FP + FN) over the labels that occur or are predicted; NaN without any.

    Args:
        sums: sums of :func:`f1_counts` ``[3 * labels]``.

    >>> macro_f1(np.array([1.0, 2.0, 1.0, 0.0, 0.0, 0.0]))
    0.8333333333333333
    """
    positives, wrong, missed = sums.reshape(3, -1)
    terms = 2 * positives + wrong + missed
    occur = terms > 0
    return float(np.mean(2 * positives[occur] / terms[occur])) if occur.any() else math.nan
