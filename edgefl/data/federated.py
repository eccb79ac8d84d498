"""A data set divided among clients, for training and evaluation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from edgefl.data.augment import Augmentation
from edgefl.data.dataset import Dataset, load
from edgefl.data.holdout import held_out
from edgefl.data.partitions.by_file import ByFile
from edgefl.data.partitions.like_training import cut_like_training
from edgefl.data.partitions.natural import Natural, split_by_owner
from edgefl.data.sharding import Integers, Shards
from edgefl.data.sizes import Split, shard_sizes
from edgefl.data.skewed import skewed
from edgefl.data.spec import DataSpec
from edgefl.randomness import generator

__all__ = ["FederatedData", "Split", "load_federated", "shard_sizes"]


@dataclass(frozen=True, slots=True, eq=False)
class FederatedData:
    """The samples of one run on the training device, and their owners.

    With a feature skew, the training samples and, with ``test: partitioned``, the evaluation samples are those that
    their client sees.

    Attributes:
        train: the training samples; without the held-out ones if the validation split is evaluated.
        test: the test samples.
        validation: the held-out training samples; ``None`` if the test split is evaluated.
        shards: positions in ``train`` by client.
        label_counts: training samples of each class on each client, ``[clients, classes]``; one column if samples
            have no class.
        evaluation_shards: positions in :attr:`evaluation` by client; ``None`` unless ``test: partitioned``. A shard may
            be empty if clients have few samples.
        augment: the augmentation of training batches.
    """

    train: Dataset
    test: Dataset
    validation: Dataset | None
    shards: Shards
    label_counts: Integers
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
        """Number of clients."""
        return self.shards.clients

    @property
    def classes(self) -> int:
        """Number of classes, or of outputs that the task needs."""
        return self.train.classes

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input: channels, height and width of an image, the length of a sequence, and so on."""
        return self.train.shape

    @property
    def tokens(self) -> bool:
        """Whether inputs are integers, such as the numbers of characters."""
        return not self.train.mean and not self.train.inputs.is_floating_point()


def load_federated(
    spec: DataSpec,
    seed: int,
    device: torch.device | str = "cpu",
    split: Split = "test",
    *,
    room: float = math.inf,
) -> FederatedData:
    """Read the data set and divide it among the clients.

    Args:
        spec: the scenario's ``data`` section.
        seed: the run's seed; decides the partition, not the samples.
        device: the device that trains.
        split: the split to evaluate. ``validation`` removes the held-out samples from training.
        room: bytes of its memory for inputs. Larger ones stay in main memory, and each batch is copied.

    Raises:
        UserError: data files are missing, or the samples cannot be partitioned as requested.
    """
    train, test = load(spec)
    validation = None
    if split == "validation":
        kept, held = held_out(train.strata, train.origin, spec.validation)
        train, validation = train.part(kept), train.part(held)
    strata, count = train.strata, train.stratum_count
    shards = spec.partition.split_owned(strata, train.owner, count, spec.clients, generator(seed, "partition"))
    label_counts = shards.label_counts(strata, count)
    evaluated = test if validation is None else validation
    evaluation_shards = None
    if spec.test == "partitioned":
        evaluation_shards = (
            split_by_owner(evaluated.owner, spec.clients, every=False)
            if isinstance(spec.partition, Natural | ByFile) and evaluated.owner is not None
            else cut_like_training(evaluated.strata, label_counts, generator(seed, "test partition"), split)
        )
    if spec.feature_skew is not None:
        train = skewed(train, shards, spec.feature_skew, seed, "train")
        if evaluation_shards is not None:
            evaluated = skewed(evaluated, evaluation_shards, spec.feature_skew, seed, "test")
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
