"""The scenario's ``data`` section: samples, number of clients and partition; and the interface of every data set."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, PrivateAttr, model_validator

from edgefl.data.augment import Augmentation
from edgefl.data.choice import largest_remainders
from edgefl.data.feature_skews import AnyFeatureSkew
from edgefl.data.partitions import AnyPartition
from edgefl.data.partitions.iid import Iid
from edgefl.data.samples import Description, Samples, checked_samples, described, in_terms_of
from edgefl.errors import UserError
from edgefl.options import Component
from edgefl.registry import Registry, class_of, part_of, tagged
from edgefl.tasks.base import Task
from edgefl.tasks.classification import Classification
from edgefl.validation import shown, validated

__all__ = ["DATA_SETS", "DataSpec", "Description", "Normalisation", "Samples", "check_use"]


class Normalisation(Component):
    """Means and deviations that replace the data set's own, for pixels in [0, 1], one number per channel."""

    mean: tuple[float, ...] = Field(min_length=1, description="subtracted, one number for each channel")
    std: tuple[float, ...] = Field(min_length=1, description="divided by, one positive number for each channel")

    @model_validator(mode="after")
    def _positive(self) -> Self:
        if len(self.mean) != len(self.std) or not all(deviation > 0 for deviation in self.std):
            raise ValueError(
                f"expected as many positive standard deviations as means, found mean {list(self.mean)} and std "
                f"{list(self.std)}"
            )
        return self


def or_else(other: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """A change of the JSON schema of ``test``, which also has the ``other`` form; see :attr:`DataSpec.short_test`."""

    def change(schema: dict[str, Any]) -> None:
        schema["anyOf"] = [{"enum": schema.pop("enum"), "type": schema.pop("type")}, other]

    return change


class DataSpec(Component):
    """A data set and its use. Every data set is a subclass with its own ``name`` and further options.

    A subclass gives ``name`` the type ``Literal["its_name"]`` with that default, implements :meth:`read` and possibly
    :meth:`declared`, and is registered in :data:`DATA_SETS` or by an entry point of the group ``edgefl.datasets``.
    """

    short_test: ClassVar[tuple[str, type] | None] = None
    """An option, and its type, that another value of ``test`` sets, with ``test: whole``."""

    name: str = Field(description="the data set")
    root: str | None = Field(None, description="folder of the data; null: $EDGEFL_DATA, else the user's cache folder")
    images: int | None = Field(None, ge=1, description="training samples to use, by the set's class shares; null: all")
    clients: int = Field(default=100, ge=1, description="clients that share the training samples")
    test: Literal["whole", "partitioned"] = Field("whole", description="whole for each client, or parts by its classes")
    partition: AnyPartition = Field(default=Iid(), description="partition of the training samples over the clients")
    validation: float = Field(0.1, gt=0, lt=1, description="training samples held out, for the validation split")
    augment: Augmentation = Field(
        "none", description="4 pixels of padding, random crop and flip; FedMLB's: a rotation by up to 10 degrees before"
    )
    feature_skew: AnyFeatureSkew | None = Field(None, description="a transformation of inputs that differs by client")
    normalise: Normalisation | None = Field(default=None, description="mean and std; null: the data set's own")
    _task: Task = PrivateAttr(default_factory=Classification)

    @model_validator(mode="before")
    @classmethod
    def _set_by_test(cls, data: Any) -> Any:
        test = data.get("test") if isinstance(data, dict) else None
        if cls.short_test is None or type(test) is not cls.short_test[1] or test in {"whole", "partitioned"}:
            return data
        option, _ = cls.short_test
        if data.get(option, test) != test:
            raise ValueError(f"expected test: {test} or {option}: {data[option]}, found both")
        return {**data, "test": "whole", option: test}

    @property
    def task(self) -> Task:
        """The scenario's task, which determines the labels."""
        return self._task

    def for_task(self, task: Task) -> Self:
        """The same data with labels for a task; UserError if the partition needs classes that it lacks."""
        if not task.classes and self.partition.by_class:
            raise UserError(
                f"divides the samples by class, and task '{task.kind}' has none; expected iid, natural, file or "
                f"quantity, found {self.partition.kind}",
                field="partition.kind",
            )
        changed = self.model_copy()
        changed._task = task
        return changed

    def declared(self) -> Description | None:
        """The properties known without reading files; ``None``, the default, if the files determine them."""
        return None

    @abstractmethod
    def read(self) -> tuple[Samples, Samples]:
        """The training and the test samples, read, made or downloaded; UserError, with the folder, if none are."""

    def class_names(self) -> list[str]:
        """The names of the classes 0, 1, …; empty if they have none."""
        return []

    def client_names(self) -> list[str]:
        """The names of the clients 0, 1, …, of the natural partition; empty if they have none."""
        return []

    def column_facts(self) -> list[tuple[str, str, str]]:
        """The name, the use and the values of each column of a table; empty for other data."""
        return []

    def known(self) -> Description | None:
        """The value of :meth:`declared`; UserError, with the data set and its package, if it is none."""
        with DATA_SETS.blaming(type(self)):
            answer = self.declared()
            return None if answer is None else in_terms_of(self.task, answer)

    def checked(self) -> tuple[Samples, Samples]:
        """The value of :meth:`read`, checked against :meth:`declared`; UserError if it, or the plug-in, is wrong."""
        known = self.known()
        with DATA_SETS.blaming(type(self)):
            return checked_samples(self.read(), known, self.task)

    def samples(self) -> tuple[Samples, Samples]:
        """The value of :meth:`checked` with inputs as contiguous arrays."""
        train, test = (part._replace(inputs=np.ascontiguousarray(part.inputs)) for part in self.checked())
        return train, test

    def describe(self) -> Description:
        """The properties of the used samples, from :meth:`declared` or files; UserError if there are too few."""
        known = self.known()
        if known is None:
            known = described(*self.checked(), self.task)
        if self.images is not None and self.images > sum(known.train):
            raise UserError(f"expected at most {sum(known.train)}, found {self.images}", field="images")
        check_use(self, known)
        if self.images is None:
            return known
        return replace(known, train=tuple(largest_remainders(np.array(known.train, np.float64), self.images).tolist()))

    @model_validator(mode="after")
    def _can_be_cut(self) -> Self:
        if self.known() is None:
            return self
        try:
            known = self.describe()
            self.partition.check(np.array(known.train), self.clients)
        except UserError as error:
            raise ValueError(f"images: {error.message}" if error.field == "images" else error.message) from None
        if self.test == "partitioned" and self.clients > sum(known.test):
            raise ValueError(
                f"test: partitioned expects at most {sum(known.test)} clients, one for each test sample, found "
                f"{self.clients}"
            )
        return self


DATA_SETS: Registry[type[DataSpec]] = Registry(
    "data set", package="edgefl.data.sets", group="edgefl.datasets", check=class_of(DataSpec)
)


def check_use(spec: DataSpec, known: Description) -> None:
    """Check that ``augment``, ``feature_skew`` and ``normalise`` fit the inputs, or raise a UserError."""
    skew = spec.feature_skew
    if skew is not None and known.kind not in skew.inputs:
        message = f"feature_skew {skew.kind} is for {' or '.join(skew.inputs)}, and these data are {known.kind}"
        raise UserError(message, field="feature_skew")
    if known.kind != "images":
        if spec.augment != "none":
            message = f"augment moves pixels, and these data are {known.kind}: expected none, found {spec.augment}"
            raise UserError(message, field="augment")
        if spec.normalise is not None:
            message = f"normalise is for pixels, and these data are {known.kind}: expected null"
            raise UserError(message, field="normalise")
    elif spec.normalise is not None and len(spec.normalise.mean) != known.shape[0]:
        message = f"normalise expects {known.shape[0]} number(s) for mean and std, found {len(spec.normalise.mean)}"
        raise UserError(message, field="normalise")


def data_set(value: Any) -> DataSpec:
    """The data set described by a mapping with ``name`` and options.

    Raises:
        UserError: unknown name or option; the message states the key.

    >>> data_set({"name": "digits", "clients": 10}).clients
    10
    """
    if isinstance(value, DataSpec):
        return value
    if not isinstance(value, Mapping):
        raise UserError(f"expected a mapping, found {shown(value)}")
    name, part = part_of(DATA_SETS, value, "name")
    return validated(part, {**value, "name": name})


def data_sets_schema() -> dict[str, Any]:
    """The JSON schema of ``data``, with the options of every data set."""
    each = DATA_SETS.of_each(lambda name, part: tagged(part.model_json_schema(mode="validation"), "name", name, part))
    return {"oneOf": list(each.values())}
