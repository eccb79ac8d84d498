"""A complete data set for a device: inputs as they are stored, and labels."""

from __future__ import annotations

import hashlib
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgefl.data.choice import chosen_images
from edgefl.data.location import data_root
from edgefl.data.partitions.by_owner import ByFile
from edgefl.data.samples import Samples, described, strata
from edgefl.data.sharding import Integers
from edgefl.data.spec import DataSpec, check_use
from edgefl.errors import Note, UserError
from edgefl.input_file import find_input, input_files, naming_fields
from edgefl.tasks.base import Task
from edgefl.tasks.classification import Classification


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A labelled set of images, numbers or tokens."""

    inputs: Tensor  # [samples, …], as in Samples; on the device, or in main memory
    labels: Tensor  # int64 [samples] on the same device, or the labels of another task
    classes: int  # number of classes, or of outputs that the task needs
    # mean of each channel of images, of pixels in [0, 1], for normalising batches; empty for other inputs
    mean: tuple[float, ...]
    std: tuple[float, ...]  # standard deviation, likewise
    # int64 [samples] in main memory: the original of each distorted copy; None without copies
    origin: Integers | None = None
    # int64 [samples] in main memory: the owner of each sample, from 0; None without owners
    owner: Integers | None = None
    task: Task = Classification()  # noqa: RUF009  (frozen)

    def __len__(self) -> int:
        return self.inputs.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input: channels, height and width of an image, the length of a sequence, and so on."""
        return tuple(self.inputs.shape[1:])

    @property
    def device(self) -> torch.device:
        """The device on which batches are used, and that holds the labels."""
        return self.labels.device

    @property
    def store(self) -> torch.device:
        """The device that holds the inputs: :attr:`device`, or the CPU if it has not enough memory."""
        return self.inputs.device

    @property
    def bytes(self) -> int:
        return self.inputs.nbytes

    @property
    def strata(self) -> Integers:
        """The class of each sample, int64 ``[samples]`` in main memory; all 0 if samples have no class."""
        return strata(self.labels.cpu().numpy(), self.task)

    @property
    def stratum_count(self) -> int:
        """Number of classes; 1 if samples have no class."""
        return self.classes if self.task.classes else 1

    def to(self, device: torch.device | str, *, keep: bool = False) -> Dataset:
        """The same samples for a device; with ``keep``, the inputs stay where they are."""
        return replace(self, inputs=self.inputs if keep else self.inputs.to(device), labels=self.labels.to(device))

    def part(self, indices: Integers) -> Dataset:
        """The samples at these positions, in this order."""
        chosen = torch.from_numpy(indices)
        inputs, labels = self.inputs[chosen.to(self.store)], self.labels[chosen.to(self.device)]
        origin, owner = (None if each is None else each[indices] for each in (self.origin, self.owner))
        return replace(self, inputs=inputs, labels=labels, origin=origin, owner=owner)


def load(spec: DataSpec) -> tuple[Dataset, Dataset]:
    """The training and the test samples of ``spec``; cached for all seeds and methods, so do not modify them."""
    train, test, mean, std = _read(_bare(spec), data_root(spec.root), _stamps(spec))
    known = spec.known() or described(train, test, spec.task)
    try:
        check_use(spec, known)
    except UserError as error:
        raise UserError(error.message, field=f"data.{error.field}") from None
    if spec.normalise is not None:
        mean, std = spec.normalise.mean, spec.normalise.std
    classes = known.classes
    if isinstance(spec.partition, ByFile):
        train, test = train._replace(owner=spec.partition.owners(len(train.labels))), test._replace(owner=None)
    training = _dataset(train, classes, mean, std, spec.task)
    if spec.images is not None:
        if spec.images > len(training):
            raise UserError(f"expected at most {len(training)}, found {spec.images}", field="data.images")
        owners = owners_of_clients(spec, training)
        clients = 0 if owners is None else len(np.unique(owners[owners >= 0]))
        if spec.images < clients:
            message = f"expected at least {clients}, one sample for each client, found {spec.images}"
            raise UserError(message, field="data.images")
        training = training.part(chosen_images(training.strata, spec.images, owners))
    return training, _dataset(test, classes, mean, std, spec.task)


def owners_of_clients(spec: DataSpec, data: Dataset) -> Integers | None:
    """The client of each sample, -1 for none; None if the partition does not follow the owners of samples."""
    if not spec.partition.by_owner or data.owner is None:
        return None
    return np.where(data.owner < spec.clients, data.owner, -1)


def check_tokens(spec: DataSpec, tokens: int) -> None:
    """Check that all inputs are tokens that a model has, from 0 to ``tokens`` - 1; reads the data set."""
    for part in load(spec):
        expected = f"expected integers from 0 to {tokens - 1}, the tokens of the model"
        if part.inputs.is_floating_point():
            raise UserError(f"{expected}, found floating-point numbers as inputs", field="data")
        for found in (int(part.inputs.min()), int(part.inputs.max())):
            if not 0 <= found < tokens:
                raise UserError(f"{expected}, found {found} in the inputs", field="data")


def check_padding(spec: DataSpec, padding: int) -> None:
    """Check that no label counts where texts are filled up with a token, and note texts that have it elsewhere."""
    elsewhere, hint = 0, "write model.args: {pad_token_id: null}"
    for part in load(spec):
        real, labels = (part.inputs != padding).numpy(), part.labels.numpy()
        if len(part.task.output_shape(part.classes, part.shape)) > 1:
            wrong = (part.task.counted(labels) & ~real).any(axis=1)
            if wrong.any():
                raise UserError(
                    f"expected a label for each place, and -100, which does not count, at the model's padding, token "
                    f"{padding}; found others in sample {wrong.argmax()}; if no text is padded, {hint}",
                    field="data",
                )
        before = np.logical_or.accumulate(real, axis=1)
        after = np.logical_or.accumulate(real[:, ::-1], axis=1)[:, ::-1]
        elsewhere += int((~real & before & after).any(axis=1).sum())
    if elsewhere:
        message = f"the model masks token {padding} as padding, and {elsewhere} texts have it between other tokens"
        warnings.warn(f"data: {message}; if it is no padding, {hint}", Note, stacklevel=1)


def content_of_set(spec: DataSpec) -> str:
    """A digest of the whole set, even if a run uses only a part; read once, as for :func:`load`."""
    return _content(_bare(spec), data_root(spec.root), _stamps(spec))


_USE = ("images", "clients", "test", "partition", "validation", "augment", "feature_skew", "normalise")


def _bare(spec: DataSpec) -> DataSpec:
    """The spec without the options that do not change the samples."""
    return spec.model_copy(update={name: type(spec).model_fields[name].get_default() for name in _USE})


def _stamps(spec: DataSpec) -> tuple[Any, ...]:
    """The present versions of the files and folders that the spec names."""
    folders = [getattr(spec, name) for name, what in naming_fields(type(spec)).items() if what == "folder"]
    found = []
    with suppress(OSError, UserError):  # the set's reader reports it
        paths = [file.found() for file in input_files(spec).values()]
        for folder in filter(None, folders):
            paths += sorted(find_input(folder, what="folder").rglob("*"))
        for path in paths:
            state = path.stat()
            found.append((str(path), state.st_mtime_ns, state.st_size, state.st_ino))
    return tuple(found)


@lru_cache(maxsize=1)
def _content(spec: DataSpec, root: Path, stamps: tuple[Any, ...]) -> str:
    train, test, _, _ = _read(spec, root, stamps)
    return content_of_samples(train, test)


@lru_cache(maxsize=1)
def _read(
    spec: DataSpec, _root: Path, _stamps: tuple[Any, ...]
) -> tuple[Samples, Samples, tuple[float, ...], tuple[float, ...]]:
    """The samples and the statistics of images; ``_root`` and ``_stamps`` are in the key because both may change."""
    try:
        train, test = spec.samples()
        known = spec.known()
    except UserError as error:
        field = f"data.{error.field}" if error.field else "data"
        raise UserError(error.message, field=field, file=error.file) from error.__cause__
    if known is not None and known.mean is not None and known.std is not None:
        return train, test, known.mean, known.std
    if train.kind != "images":
        return train, test, (), ()
    return train, test, *channel_statistics(train)


def channel_statistics(pixels: Samples) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Exact mean and deviation of each channel, of pixels in [0, 1]; the deviation of a constant one is 1."""
    values = np.arange(256) / 255
    means, deviations = [], []
    for channel in range(pixels.inputs.shape[1]):
        parts = (pixels.inputs[start : start + 4096, channel] for start in range(0, len(pixels.inputs), 4096))
        histogram = np.sum([np.bincount(part.ravel(), minlength=256) for part in parts], axis=0)
        share = histogram / histogram.sum()
        mean = float(share @ values)
        means.append(mean)
        deviations.append(float(np.sqrt(share @ (values - mean) ** 2)) or 1.0)
    return tuple(means), tuple(deviations)


def _tensor(array: NDArray[Any]) -> Tensor:
    # An axis of length 1 may keep a negative stride in what NumPy calls contiguous; PyTorch takes none.
    return torch.from_numpy(array if min(array.strides, default=0) >= 0 else array.copy())


def _dataset(samples: Samples, classes: int, mean: tuple[float, ...], std: tuple[float, ...], task: Task) -> Dataset:
    inputs, labels = _tensor(samples.inputs), _tensor(samples.labels)
    return Dataset(inputs, labels, classes, mean, std, samples.origin, samples.owner, task)


READ_WHOLE = 1 << 28
"""Maximum bytes of an array to read; reading them takes about a fifth of a second."""

_PIECE = 1 << 20
_FIELDS = ("images", "labels", "origin", "owner", "classes")
"""The words for the fields of samples in a digest; another word changes all digests."""


def content_of_samples(*parts: Samples) -> str:
    """A digest of the parts' arrays; of those above :data:`READ_WHOLE` bytes, of evenly spaced pieces of 1 MiB."""
    digest = hashlib.sha256()
    for part in parts:
        for name, value in zip(_FIELDS, part, strict=True):
            digest.update(name.encode())
            if isinstance(value, np.ndarray):
                _add(digest, value)
            else:
                digest.update(repr(value).encode())
    return digest.hexdigest()[:32]


def _add(digest: Any, array: NDArray[Any]) -> None:
    digest.update(f"{array.dtype.str} {array.shape}".encode())
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if len(flat) <= READ_WHOLE:
        digest.update(flat.data)
        return
    for start in np.linspace(0, len(flat) - _PIECE, READ_WHOLE // _PIECE, dtype=np.int64).tolist():
        digest.update(flat[start : start + _PIECE].data)
