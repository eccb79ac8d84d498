"""Losses and metrics of the tasks, against other computations of them."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import f1_score, mean_absolute_error, root_mean_squared_error

from edgefl.errors import WrongAnswer
from edgefl.tasks.base import TASKS
from edgefl.tasks.classification import Classification
from edgefl.tasks.language_model import LanguageModel
from edgefl.tasks.multilabel import Multilabel
from edgefl.tasks.regression import Regression

DRAWS = np.random.default_rng(0)
LOGITS = torch.tensor(DRAWS.standard_normal((60, 5)), dtype=torch.float32)
CLASSES = torch.tensor(DRAWS.integers(0, 4, 60))  # class 4 never occurs
MARKS = torch.tensor(DRAWS.integers(0, 2, (60, 5)), dtype=torch.float32)
NUMBERS = torch.tensor(DRAWS.standard_normal((60, 5)), dtype=torch.float32)
PLACES = torch.tensor(DRAWS.standard_normal((6, 10, 7)), dtype=torch.float32)
TOKENS = torch.tensor(DRAWS.integers(0, 7, (6, 10)))
PADDED = torch.where(torch.arange(10) < torch.tensor([10, 4, 7, 1, 10, 3])[:, None], TOKENS, -100)


def measured(task, outputs, labels):
    """The metric of two batches of different sizes."""
    parts = [task.scores(outputs[part], labels[part]).sum(dim=0) for part in (slice(0, 4), slice(4, None))]
    return task.value(sum(parts).numpy())


@pytest.mark.parametrize(
    ("task", "outputs", "labels", "expected"),
    [
        (Classification(), LOGITS, CLASSES, float((LOGITS.argmax(1) == CLASSES).double().mean())),
        (
            Classification(metric="macro_f1"), LOGITS, CLASSES,
            f1_score(CLASSES, LOGITS.argmax(1), average="macro"),
        ),
        (Multilabel(), LOGITS, MARKS, f1_score(MARKS, LOGITS > 0, average="macro")),
        (Regression(), LOGITS, NUMBERS, math.sqrt(float(((LOGITS.double() - NUMBERS.double()) ** 2).mean()))),
        (Regression(metric="mae"), LOGITS, NUMBERS, mean_absolute_error(NUMBERS.double(), LOGITS.double())),
        (
            Regression(), LOGITS[:, :1], NUMBERS[:, :1],
            root_mean_squared_error(NUMBERS[:, 0].double(), LOGITS[:, 0].double()),
        ),
        (LanguageModel(), PLACES, TOKENS, math.exp(F.cross_entropy(PLACES.double().mT, TOKENS))),
        (LanguageModel(), PLACES, PADDED, math.exp(F.cross_entropy(PLACES.double().mT, PADDED))),
        (
            LanguageModel(metric="accuracy"), PLACES, PADDED,
            float((PLACES.argmax(2) == PADDED).sum()) / int((PADDED >= 0).sum()),
        ),
    ],
    ids=["accuracy", "macro-F1", "labels", "RMSE", "MAE", "one number", "perplexity", "padding", "tokens"],
)  # fmt: skip
def test_metrics_are_those_that_others_compute(task, outputs, labels, expected):
    assert measured(task, outputs, labels) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("task", "outputs", "labels", "expected"),
    [
        (Classification(), LOGITS, CLASSES, F.cross_entropy(LOGITS, CLASSES)),
        (Multilabel(), LOGITS, MARKS, F.binary_cross_entropy_with_logits(LOGITS, MARKS)),
        (Regression(), LOGITS, NUMBERS, ((LOGITS - NUMBERS) ** 2).mean()),
        (Regression(loss="mae"), LOGITS, NUMBERS, (LOGITS - NUMBERS).abs().mean()),
        (Regression(loss="huber"), LOGITS, NUMBERS, F.smooth_l1_loss(LOGITS, NUMBERS)),
        (LanguageModel(), PLACES, PADDED, F.cross_entropy(PLACES.mT, PADDED)),
    ],
    ids=["classification", "multilabel", "mse", "mae", "huber", "language model"],
)
def test_the_loss_of_a_batch_is_the_mean_that_evaluation_sums(task, outputs, labels, expected):
    torch.testing.assert_close(task.mean_loss(outputs, labels), expected)
    total, count = task.summed_loss(outputs, labels)
    assert float(total) / int(count) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "found", "message"),
    [
        ("classification", np.array([0.5]), "whole numbers from 0, the classes, found 0.5 in sample 0"),
        ("classification", np.array([[1, 0]]), r"the argmax of one-hot rows\), found \[1, 2\]"),
        ("multilabel", np.array([0, 1]), r"\[samples, labels\] of 0 and 1, found \[2\]"),
        ("multilabel", np.array([[0, 1], [2, 0]]), "0 or 1 for each label, found 2 in sample 1"),
        ("multilabel", np.array([["a"]]), "expected numbers, found the type text"),
        ("regression", np.array([1.0, np.nan]), "finite numbers of float32, found nan in sample 1"),
        ("regression", np.array([1e300]), r"finite numbers of float32, found 1e\+300 in sample 0"),
        ("regression", np.zeros((2, 2, 2)), r"\[samples\] or \[samples, numbers\], found \[2, 2, 2\]"),
        ("regression", np.zeros(0), "expected labels, found none"),
        ("language_model", np.zeros((2, 2, 2)), r"tokens as an array of \[samples, length\], found \[2, 2, 2\]"),
        ("language_model", np.array([[0, -1]]), "tokens from 0 to 99999, found -1 in sample 0"),
        ("language_model", np.array([[0, 10**6]]), "tokens from 0 to 99999, found 1000000 in sample 0"),
        ("language_model", np.full((2, 3), -100), "expected tokens, found only -100"),
    ],
)
def test_labels_of_another_kind_are_refused(kind, found, message):
    with pytest.raises(WrongAnswer, match=message):
        TASKS[kind]().labels(found)


def test_a_language_models_labels_are_the_next_tokens():
    inputs = np.array([[5, 6, 7], [1, 2, 3]], np.uint8)
    task = LanguageModel()
    assert task.completed(inputs, task.labels(np.array([8, 4]))).tolist() == [[6, 7, 8], [2, 3, 4]]
    given = task.labels(np.array([[6, 7, -100], [2, -100, -100]]))
    assert task.completed(inputs, given).tolist() == given.tolist()
    with pytest.raises(WrongAnswer, match=r"a label for each place of the inputs \[2, 3\], found \[2, 2\]"):
        task.completed(inputs, given[:, :2])
    with pytest.raises(WrongAnswer, match="reads sequences of tokens"):
        task.completed(inputs.astype(float), given)


def test_a_batch_without_a_counted_place_has_loss_zero_and_no_gradient():
    outputs = PLACES.clone().requires_grad_()
    loss = LanguageModel().mean_loss(outputs, torch.full((6, 10), -100))
    loss.backward()
    assert float(loss) == 0
    assert not outputs.grad.any()


def test_numbers_that_are_too_large_to_raise_are_infinite():
    assert LanguageModel().value(np.array([1e6, 1.0])) == math.inf
