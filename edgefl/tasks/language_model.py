"""Language modelling: the next token of every place of a sequence."""

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

IGNORED = -100
"""The label of a place that does not count, such as padding; PyTorch's own number."""

PERPLEXITY = Metric("perplexity", "lower", share=False)


@TASKS.register("language_model")
class LanguageModel(Task):
    """A token for each place of a sequence ``[samples, length]``; the outputs are logits ``[batch, length, tokens]``.

    If a data set gives one label for each sequence, it is the token that follows the last one: the labels are then the
    inputs shifted by one place, with this token at the end. Places with the label -100 do not count.
    """

    kind: Literal["language_model"] = Field("language_model", description="the next token at every place of a sequence")
    metric: Literal["perplexity", "accuracy"] = Field(
        default="perplexity", description="exp of the mean cross-entropy of a token, or share of tokens predicted right"
    )
    logits: ClassVar[bool] = True
    label_type: ClassVar[torch.dtype] = torch.int64

    @property
    def measured(self) -> Metric:
        return PERPLEXITY if self.metric == "perplexity" else ACCURACY

    def labels(self, found: NDArray[Any]) -> NDArray[Any]:
        """Tokens, int64 ``[samples]`` or ``[samples, length]``."""
        if found.ndim not in (1, 2):
            raise WrongAnswer(f"expected tokens as an array of [samples, length], found {list(found.shape)}")
        if found.dtype.kind in "if" and found.ndim == 2:
            counted = found != IGNORED
            if not counted.any():
                raise WrongAnswer(f"expected tokens, found only {IGNORED}")
            return np.where(counted, whole_numbers(np.where(counted, found, 0), "tokens"), IGNORED)
        return whole_numbers(found, "tokens")

    def completed(self, inputs: NDArray[Any], labels: NDArray[Any]) -> NDArray[Any]:
        if inputs.ndim != 2 or inputs.dtype.kind not in "iu":
            raise WrongAnswer(
                f"a language model reads sequences of tokens, integers [samples, length]; found {inputs.dtype} "
                f"{list(inputs.shape)}"
            )
        if labels.ndim == 1:
            return np.concatenate([inputs[:, 1:].astype(np.int64), labels[:, None]], axis=1)
        if labels.shape != inputs.shape:
            message = f"expected a label for each place of the inputs {list(inputs.shape)}, found {list(labels.shape)}"
            raise WrongAnswer(message)
        return labels

    def counted(self, labels: NDArray[Any]) -> NDArray[np.bool_]:
        counted: NDArray[np.bool_] = labels != IGNORED
        return counted

    def label_shape(self, outputs: int, sample_shape: tuple[int, ...]) -> tuple[int, ...]:
        return sample_shape

    def output_shape(self, outputs: int, sample_shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*sample_shape, outputs)

    def mean_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy of a token; 0 if no place counts."""
        summed = F.cross_entropy(outputs.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")
        return summed / (labels != IGNORED).sum().clamp(min=1)

    def mean(self, numbers: Tensor, labels: Tensor) -> Tensor:
        """0 if no place counts."""
        counted = labels != IGNORED
        return (numbers * counted).sum() / counted.sum().clamp(min=1)

    def summed_loss(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return self._each(outputs, labels).sum(), (labels != IGNORED).sum()

    def scores(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The cross-entropy of a sequence or its right tokens, and its tokens."""
        counted = labels != IGNORED
        right = (outputs.argmax(dim=2) == labels) & counted
        figure = right.double() if self.metric == "accuracy" else self._each(outputs, labels)
        return torch.stack([figure.sum(dim=1), counted.sum(dim=1).double()], dim=1)

    @staticmethod
    def _each(outputs: Tensor, labels: Tensor) -> Tensor:
        """Computed in float32, since float64 logits of a large vocabulary do not fit in memory."""
        flat = F.cross_entropy(outputs.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="none")
        return flat.double().reshape(labels.shape)

    def value(self, sums: NDArray[np.float64]) -> float:
        mean = float(sums[0] / sums[1]) if sums[1] else math.nan
        if self.metric == "accuracy":
            return mean
        return math.exp(mean) if mean < 700.0 else math.inf  # exp of larger numbers is not finite
