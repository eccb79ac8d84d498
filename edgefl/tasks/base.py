"""The base class of tasks, and the registry of them."""

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgefl.errors import UserError, WrongAnswer
from edgefl.options import Component
from edgefl.record.metric import Metric
from edgefl.registry import Registry, class_of


class Task(Component):
    """A task: a model returns outputs ``[batch, …]``, and a sample has a label of the shape :meth:`label_shape`."""

    kind: str
    classes: ClassVar[bool] = False
    """True if each sample has one class, by which data can be divided."""
    logits: ClassVar[bool] = False
    """True if outputs ``[batch, …, classes]`` are logits of classes or tokens, whose predictions can be compared."""
    label_type: ClassVar[torch.dtype] = torch.float32

    @property
    @abstractmethod
    def measured(self) -> Metric:
        """The metric of a model on evaluation data."""

    @abstractmethod
    def labels(self, found: NDArray[Any]) -> NDArray[Any]:
        """The labels ``[samples, …]`` of an array that a data set gives."""

    def completed(self, inputs: NDArray[Any], labels: NDArray[Any]) -> NDArray[Any]:
        """The labels of samples whose inputs are known; by default unchanged."""
        return labels

    def counted(self, labels: NDArray[Any]) -> NDArray[np.bool_]:
        """True for the labels that count, in their shape; by default all."""
        return np.ones(labels.shape, dtype=bool)

    def outputs(self, labels: NDArray[Any], classes: int | None) -> int:
        """The number of outputs, by default one a number of a label or a class, and the classes that data states."""
        if self.label_type.is_floating_point:
            return int(labels.shape[1])
        return classes or int(labels.max()) + 1

    def outputs_for_classes(self, classes: int) -> int:
        """The number of outputs for labels that are the numbers of ``classes`` classes."""
        try:
            number = self.labels(np.zeros(1, dtype=np.int64))
        except WrongAnswer:
            message = f"expected a task whose labels can be the numbers of classes, as in these data, found {self.kind}"
            raise UserError(message, field="task") from None
        return self.outputs(number, classes)

    def label_shape(self, outputs: int, sample_shape: tuple[int, ...]) -> tuple[int, ...]:
        return (outputs,)

    def output_shape(self, outputs: int, sample_shape: tuple[int, ...]) -> tuple[int, ...]:
        return (outputs,)

    @abstractmethod
    def mean_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of a batch, differentiable with respect to ``outputs``."""

    def mean(self, numbers: Tensor, labels: Tensor) -> Tensor:
        """The mean of one number for each label, of the shape of ``labels``, over those that count."""
        return numbers.mean()

    @abstractmethod
    def summed_loss(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | int]:
        """The loss of a batch as a sum, and the number of its terms; the mean over all batches is reported."""

    @abstractmethod
    def scores(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Numbers of each sample ``[batch, numbers]``, float64, whose sums over samples determine the metric."""

    @abstractmethod
    def value(self, sums: NDArray[np.float64]) -> float:
        """The metric of samples with these sums of :meth:`scores`, not negative; NaN if nothing is counted."""


TASKS: Registry[type[Task]] = Registry("task", package="edgefl.tasks", group="edgefl.tasks", check=class_of(Task))
"""Every task by its kind; ``edgefl.tasks`` entry points add to it."""


MOST_CLASSES = 100_000
"""Classes or tokens; a larger label is not the number of a class."""


def whole_numbers(found: NDArray[Any], what: str) -> NDArray[np.int64]:
    """The numbers of classes or tokens (``what``) as int64."""
    _check_type(found, f"whole numbers from 0, the {what}")
    if found.dtype.kind == "f":
        found = found.astype(np.float64)
        check_labels(found, np.isfinite(found) & (found == np.floor(found)), f"whole numbers from 0, the {what}")
    check_labels(found, (found >= 0) & (found < MOST_CLASSES), f"{what} from 0 to {MOST_CLASSES - 1}")
    return found.astype(np.int64)


def finite_numbers(found: NDArray[Any]) -> NDArray[np.float32]:
    """Numbers as float32."""
    _check_type(found, "numbers")
    with np.errstate(over="ignore"):
        numbers = found.astype(np.float32)
    check_labels(found, np.isfinite(numbers), "finite numbers of float32")
    return numbers


def check_labels(found: NDArray[Any], right: NDArray[np.bool_], expected: str) -> None:
    """Raise a WrongAnswer with the first label that is not ``right``."""
    if not right.all():
        place = np.unravel_index(int(right.argmin()), found.shape)
        raise WrongAnswer(f"expected {expected}, found {found[place]} in sample {place[0]}")


def _check_type(found: NDArray[Any], expected: str) -> None:
    if found.dtype.kind not in "fiub":
        kind = "text" if found.dtype.kind == "U" else found.dtype
        raise WrongAnswer(f"expected {expected}, found the type {kind}; give each a number")
    if not found.size:
        raise WrongAnswer("expected labels, found none")
