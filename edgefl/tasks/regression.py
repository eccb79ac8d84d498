"""Regression: each sample has one or more numbers."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from edgefl.errors import WrongAnswer
from edgefl.record.metric import Metric
from edgefl.tasks.base import TASKS, Task, finite_numbers

RMSE = Metric("rmse", "lower", share=False, title="RMSE")
MAE = Metric("mae", "lower", share=False, title="MAE")

_LOSSES: dict[str, Callable[..., Tensor]] = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}


@TASKS.register("regression")
class Regression(Task):
    """Numbers ``[samples]`` or ``[samples, numbers]``; outputs ``[batch, numbers]``, and errors of all of them."""

    kind: Literal["regression"] = Field(default="regression", description="one or more numbers for each sample")
    loss: Literal["mse", "mae", "huber"] = Field("mse", description="squared, absolute, or Huber's error")
    metric: Literal["rmse", "mae"] = Field("rmse", description="root of the mean squared error, or mean absolute error")

    @property
    def measured(self) -> Metric:
        return RMSE if self.metric == "rmse" else MAE

    def labels(self, found: NDArray[Any]) -> NDArray[Any]:
        """Numbers, float32 ``[samples, numbers]``."""
        if found.ndim not in (1, 2):
            raise WrongAnswer(f"expected an array of [samples] or [samples, numbers], found {list(found.shape)}")
        return finite_numbers(found).reshape(len(found), -1)

    def mean_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return _LOSSES[self.loss](outputs, labels)

    def summed_loss(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, int]:
        return _LOSSES[self.loss](outputs.double(), labels.double(), reduction="sum"), labels.numel()

    def scores(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The squared or absolute error of each sample, and its numbers."""
        error = outputs.double() - labels.double()
        error = error.square() if self.metric == "rmse" else error.abs()
        count = torch.full((len(labels),), float(labels.shape[1]), dtype=torch.float64, device=labels.device)
        return torch.stack([error.sum(dim=1), count], dim=1)

    def value(self, sums: NDArray[np.float64]) -> float:
        mean = float(sums[0] / sums[1])
        return mean**0.5 if self.metric == "rmse" else mean
