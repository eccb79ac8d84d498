"""Classification: each sample has one class."""

import math
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from edgefl.errors import WrongAnswer
from edgefl.record.metric import ACCURACY, Metric
from edgefl.tasks.base import TASKS, Task, whole_numbers

MACRO_F1 = Metric("macro_f1", title="macro-F1")


def f1_counts(predicted: Tensor, true: Tensor) -> Tensor:
    """True positives, false positives, false negatives of bool ``[batch, labels]``: float64 ``[batch, 3 * labels]``."""
    return torch.cat([predicted & true, predicted & ~true, ~predicted & true], dim=1).double()


def macro_f1(sums: NDArray[np.float64]) -> float:
    """The mean of 2 TP/(2 TP + FP + FN) over labels that occur or are predicted (NaN without any), from summed counts.

    >>> macro_f1(np.array([1.0, 2.0, 1.0, 0.0, 0.0, 0.0]))
    0.8333333333333333
    """
    positives, wrong, missed = sums.reshape(3, -1)
    terms = 2 * positives + wrong + missed
    occur = terms > 0
    return float(np.mean(2 * positives[occur] / terms[occur])) if occur.any() else math.nan


@TASKS.register("classification")
class Classification(Task):
    """One class for each sample, the outputs are logits ``[batch, classes]``; the loss is the cross-entropy."""

    kind: Literal["classification"] = Field(default="classification", description="one class for each sample")
    metric: Literal["accuracy", "macro_f1"] = Field("accuracy", description="share of right ones, or classes' mean F1")
    classes: ClassVar[bool] = True
    logits: ClassVar[bool] = True
    label_type: ClassVar[torch.dtype] = torch.int64

    @property
    def measured(self) -> Metric:
        return ACCURACY if self.metric == "accuracy" else MACRO_F1

    def labels(self, found: NDArray[Any]) -> NDArray[Any]:
        """Numbers of classes, int64 ``[samples]``; a column ``[samples, 1]`` is one label for each, too."""
        found = found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found
        if found.ndim != 1:
            shape = list(found.shape)
            raise WrongAnswer(f"expected one class for each sample (the argmax of one-hot rows), found {shape}")
        return whole_numbers(found, "classes")

    def label_shape(self, outputs: int, sample_shape: tuple[int, ...]) -> tuple[int, ...]:
        return ()

    def mean_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(outputs, labels)

    def summed_loss(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, int]:
        return F.cross_entropy(outputs.double(), labels, reduction="sum"), len(labels)

    def scores(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """1 for a right prediction and 1 for each sample, or the counts of F1."""
        predicted = outputs.argmax(dim=1)
        if self.metric == "accuracy":
            right = (predicted == labels).double()
            return torch.stack([right, torch.ones_like(right)], dim=1)
        every = torch.arange(outputs.shape[1], device=labels.device)
        return f1_counts(predicted[:, None] == every, labels[:, None] == every)

    def value(self, sums: NDArray[np.float64]) -> float:
        return float(sums[0] / sums[1]) if self.metric == "accuracy" else macro_f1(sums)
