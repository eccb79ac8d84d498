"""Multilabel classification: each sample has any number of labels."""

from typing import Any, Literal

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from edgefl.errors import WrongAnswer
from edgefl.record.metric import Metric
from edgefl.tasks.base import TASKS, Task, check_labels, finite_numbers
from edgefl.tasks.classification import MACRO_F1, f1_counts, macro_f1


@TASKS.register("multilabel")
class Multilabel(Task):
    """A 0 or 1 for each label ``[samples, labels]``, predicted by the sign of its logit; binary cross-entropy."""

    kind: Literal["multilabel"] = Field(default="multilabel", description="a 0 or 1 for each of several labels")

    @property
    def measured(self) -> Metric:
        return MACRO_F1

    def labels(self, found: NDArray[Any]) -> NDArray[Any]:
        """Zeros and ones, float32 ``[samples, labels]``."""
        if found.ndim != 2:
            raise WrongAnswer(f"expected an array of [samples, labels] of 0 and 1, found {list(found.shape)}")
        numbers = finite_numbers(found)
        check_labels(found, (numbers == 0) | (numbers == 1), "0 or 1 for each label")
        return numbers

    def mean_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs, labels)

    def summed_loss(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, int]:
        summed = F.binary_cross_entropy_with_logits(outputs.double(), labels.double(), reduction="sum")
        return summed, labels.numel()

    def scores(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return f1_counts(outputs > 0, labels > 0)

    def value(self, sums: NDArray[np.float64]) -> float:
        return macro_f1(sums)
