"""What data sets of users' own files and functions have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from edgefl import limits
from edgefl.data.arrays import Channels, Raw, description_of, samples_of
from edgefl.data.samples import Samples
from edgefl.data.spec import DataSpec, Description


class OwnData(DataSpec):
    """Data of the user: arrays of inputs, labels and, if it is known, clients."""

    test_share: float = Field(
        default=0.2,
        gt=0,
        lt=1,
        description="share of the samples to test on if there are no test data; the same in every run",
    )

    classes: int | None = Field(
        default=None,
        ge=1,
        le=limits.CLASSES,
        description="number of classes or tokens, if the training data may not contain the last one; null: as found",
    )

    def declared(self) -> None:
        """Return ``None``: the user's data determine the properties."""
        return

    @model_validator(mode="after")
    def _indices_are_known(self) -> Self:
        if self.partition.kind == "file" and not self.tests():
            raise ValueError("partition file counts the samples of the training data, so test data must be given")
        return self

    def tests(self) -> bool:
        """Whether there are test data of their own, as far as the options determine it."""
        return True

    @abstractmethod
    def raw(self) -> tuple[Raw, Raw | None]:
        """The training arrays, and the test arrays if there are any.

        Raises:
            UserError: they are missing or cannot be read.
        """

    def found(self) -> Description:
        """The description, without reading the inputs where headers contain their shape."""
        return description_of(*self.raw(), self.test_share, self.task, self.classes)

    def read(self) -> tuple[Samples, Samples]:
        """The samples."""
        return samples_of(*self.raw(), self.test_share, self.task, self.classes)


class OwnArrays(OwnData):
    """Data whose inputs may be images with channels first or last."""

    channels: Channels | None = Field(
        default=None, description="place of the channels in the inputs, first or last; null: first"
    )


def _or_a_path(schema: dict[str, Any]) -> None:
    """Allow a path for ``test`` in the JSON schema."""
    choices = schema.pop("enum")
    schema["anyOf"] = [{"enum": choices, "type": schema.pop("type")}, {"type": "string"}]


class SplitData(OwnData):
    """Data with a place for each split; a subclass has the fields ``train`` and ``test_data``."""

    test: Literal["whole", "partitioned"] = Field(
        default="whole",
        description="whole, or partitioned with the class proportions of each client's training data, or by client if "
        "the test data name clients; a path: whole, with these test data",
        json_schema_extra=_or_a_path,
    )

    test_data: str | None = None

    def tests(self) -> bool:
        """Whether test data are given."""
        return self.test_data is not None

    @model_validator(mode="before")
    @classmethod
    def _test_data(cls, data: Any) -> Any:
        """Interpret another text in ``test`` as ``test_data``."""
        if (
            isinstance(data, dict)
            and isinstance(data.get("test"), str)
            and data["test"] not in ("whole", "partitioned")
        ):
            if data.get("test_data", data["test"]) != data["test"]:
                raise ValueError(f"expected one place of test data, found {data['test']} and {data['test_data']}")
            return {**data, "test": "whole", "test_data": data["test"]}
        return data
