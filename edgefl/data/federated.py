"""A data set divided among clients, for training and evaluation, and the sizes of the parts."""

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
import torch

from edgefl.data.augment import Augmentation
from edgefl.data.choice import held_out
from edgefl.data.dataset import Dataset, load, owners_of_clients
from edgefl.data.feature_skews import FeatureSkew
from edgefl.data.partitions.by_owner import split_by_owner
from edgefl.data.partitions.flwr import Flwr
from edgefl.data.sharding import Integers, Shards, cut_like_training
from edgefl.data.spec import DataSpec
from edgefl.errors import UserError
from edgefl.randomness import generator

Split = Literal["test", "validation"]
"""The evaluated samples: the test samples, or training samples held out for validation."""

_CHUNK = 1024
"""Samples that are transformed at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class FederatedData:
    """The samples of a run on the training device, with its feature skew as clients see them, and their owners."""

    train: Dataset  # the training samples; without the held-out ones if the validation split is evaluated
    test: Dataset
    validation: Dataset | None  # the held-out training samples; None if the test split is evaluated
    shards: Shards  # positions in train by client
    # training samples of each class on each client, [clients, classes]; one column if samples have no class
    label_counts: Integers
    # positions in evaluation by client; None unless test: partitioned. A shard may be empty if clients have few
    # samples.
    evaluation_shards: Shards | None
    augment: Augmentation

    @property
    def evaluation(self) -> Dataset:
        """The evaluation samples: the validation samples if there are any, else the test samples."""
        return self.test if self.validation is None else self.validation

    @property
    def sizes(self) -> Integers:
        """Training samples of each client, ``[clients]``."""
        return self.shards.sizes

    @property
    def clients(self) -> int:
        return self.shards.clients

    def together(self) -> Self:
        """The same data with one client, which has the training samples of all."""
        counts = self.label_counts.sum(0, keepdims=True)
        return replace(self, shards=self.shards.together(), label_counts=counts)

    @property
    def classes(self) -> int:
        """Number of classes, or of outputs that the task needs."""
        return self.train.classes

    @property
    def shape(self) -> tuple[int, ...]:
        return self.train.shape

    @property
    def tokens(self) -> bool:
        """True if inputs are integers, such as the numbers of characters."""
        return not self.train.mean and not self.train.inputs.is_floating_point()


def load_federated(
    spec: DataSpec, seed: int, device: torch.device | str = "cpu", split: Split = "test", *, room: float = math.inf
) -> FederatedData:
    """Read the data set and divide it among the clients; the seed decides the partition, not the samples.

    With ``split="validation"``, the held-out samples are removed from training. If the inputs have more bytes than
    ``room``, they stay in main memory, and each batch is copied to the device.
    """
    train, test, validation, shards = _divided(spec, seed, split)
    _check_sizes(shards.sizes)
    label_counts = shards.label_counts(train.strata, train.stratum_count)
    evaluated = test if validation is None else validation
    evaluation_shards = None
    owned = spec.partition.by_owner and not isinstance(spec.partition, Flwr)  # whose client k need not be owner k
    if spec.test == "partitioned":
        evaluation_shards = (
            split_by_owner(evaluated.owner, spec.clients, every=False)
            if owned and evaluated.owner is not None
            else cut_like_training(evaluated.strata, label_counts, generator(seed, "test partition"), split)
        )
        if not evaluation_shards.sizes.any():
            raise UserError(
                f"no test sample is of one of the {spec.clients} clients, so none can be tested on its own; expected "
                "whole, or test data of the clients that train",
                field="data.test",
            )
    if spec.feature_skew is not None:
        train = _skewed(train, shards, spec.feature_skew, seed, "train")
        if evaluation_shards is not None:
            evaluated = _skewed(evaluated, evaluation_shards, spec.feature_skew, seed, "test")
    test, validation = (evaluated, None) if validation is None else (test, evaluated)
    keep = sum(part.bytes for part in (train, test, validation) if part is not None) > room
    return FederatedData(
        train=train.to(device, keep=keep),
        test=test.to(device, keep=keep),
        validation=None if validation is None else validation.to(device, keep=keep),
        shards=shards,
        label_counts=label_counts,
        evaluation_shards=evaluation_shards,
        augment=spec.augment,
    )


def _divided(spec: DataSpec, seed: int, split: Split) -> tuple[Dataset, Dataset, Dataset | None, Shards]:
    """The samples to train on, to test on and, for that split, to validate on; and the clients' shards of the first."""
    (train, test), validation = load(spec), None
    if split == "validation":
        kept, held = held_out(train.strata, train.origin, spec.validation, owners_of_clients(spec, train))
        if not len(held):
            message = "no sample can be held out, as each client (or class) has one; expected evaluation.split: test"
            raise UserError(message, field="data.validation")
        train, validation = train.part(kept), train.part(held)
    strata, rng = train.strata, generator(seed, "partition")
    return train, test, validation, spec.partition.split(strata, train.stratum_count, spec.clients, rng, train.owner)


def _check_sizes(sizes: Integers) -> None:
    if len(empty := np.flatnonzero(sizes == 0)):
        others = f" and {len(empty) - 1} others" if len(empty) > 1 else ""
        message = f"client {empty[0]}{others} of {len(sizes)} would have no sample to train on"
        raise UserError(f"{message}; expected fewer clients, or another partition", field="data.clients")


def _skewed(data: Dataset, shards: Shards, skew: FeatureSkew, seed: int, part: str) -> Dataset:
    """The samples, each transformed by its client, alike in each ``part`` (train, test); those of no client stay."""
    parameters = torch.from_numpy(skew.draw(shards.clients, generator(seed, "feature skew")))
    owners = np.repeat(np.arange(shards.clients), shards.sizes)
    rng = generator(seed, "feature skew", part)
    inputs = data.inputs.clone()
    for start in range(0, len(owners), _CHUNK):
        places = torch.from_numpy(shards.indices[start : start + _CHUNK])
        mine = parameters[torch.from_numpy(owners[start : start + _CHUNK])]
        inputs[places] = skew.apply(data.inputs[places], mine, rng)
    return replace(data, inputs=inputs)


def reads_samples(spec: DataSpec, split: Split = "test") -> bool:
    """True if the counts of clients' images depend on the data set's files."""
    return split == "validation" or spec.partition.by_owner or spec.known() is None


def samples_to_evaluate(spec: DataSpec, split: Split) -> int:
    """The number of samples that a model is evaluated on, as :func:`shard_sizes` without reading pixels.

    >>> from edgefl.data.sets.digits import Digits
    >>> samples_to_evaluate(Digits(clients=5), "test")
    600
    """
    known = spec.describe()
    return sum(known.test) if split == "test" else round(sum(known.train) * spec.validation)


def evaluation_sizes(spec: DataSpec, seed: int, split: Split = "test") -> Integers:
    """Samples that ``data.test`` gives each client, ``[clients]``; with ``partitioned``, the data set is read."""
    plain = spec.model_copy(update={"feature_skew": None})  # which changes no number
    shards = load_federated(plain, seed, split=split).evaluation_shards if spec.test == "partitioned" else None
    return np.full(spec.clients, samples_to_evaluate(spec, split)) if shards is None else shards.sizes


def shard_sizes(spec: DataSpec, seed: int, split: Split = "test") -> Integers:
    """Training images of each client, ``[clients]``: the sizes from ``load_federated``, without reading pixels.

    It reads no file if the data set declares its number of images per class, so a run without training needs no files.
    Only the validation split (to find the held-out images) and partitions by owner (to find the owners) read the set.

    >>> from edgefl.data.sets.digits import Digits
    >>> shard_sizes(Digits(clients=5), seed=0).tolist()
    [2400, 2400, 2400, 2400, 2400]
    """
    if spec.partition.by_owner or split == "validation":
        sizes = _divided(spec, seed, split)[-1].sizes
    else:
        class_sizes = np.array(spec.describe().train, dtype=np.int64)
        sizes = spec.partition.sizes(class_sizes, spec.clients, generator(seed, "partition"))
    _check_sizes(sizes)
    return sizes
