"""Sections that name a registered part and set its options: ``model: {name: cnn, width: 16}``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, PlainSerializer, PlainValidator, SerializeAsAny, ValidationError

from edgefl.data.spec import DataSpec, data_set
from edgefl.errors import EdgeflError, UserError, WrongAnswer, in_words
from edgefl.models.registry import MODELS, ModelSpec
from edgefl.registry import Registry, chosen_part, part_of, tagged
from edgefl.scheduling.bandwidth.base import ALLOCATIONS, BandwidthSpec
from edgefl.scheduling.blocks.base import BLOCK_SCHEDULERS, BlockSchedulerSpec
from edgefl.scheduling.selection.base import SELECTORS, SelectorSpec
from edgefl.tasks.base import TASKS
from edgefl.tasks.base import Task as TaskPart
from edgefl.validation import shown, validated
from edgefl.wording import with_article

Part = TypeVar("Part", bound=BaseModel)


@dataclass(frozen=True)
class Named(Generic[Part]):
    """A registered part with its options set.

    Attributes:
        name: its registered name.
        spec: an instance of the registered class.
    """

    name: str
    spec: Part


@dataclass(frozen=True)
class Section(Generic[Part]):
    """Reads, writes and describes a section that names a registered part.

    Attributes:
        tag: the key of the part's name (``name``, ``kind``).
        registry: the registry of the parts.
    """

    tag: str
    registry: Registry[type[Part]]

    def read(self, value: Any, field: str) -> Named[Part]:
        """A part from ``{tag: name, option: value…}``, or from its name; a part that was read already is unchanged.

        The name may be left out where another key means it; see :func:`~edgefl.registry.part_of`.

        Args:
            value: the section's value in the scenario.
            field: the section's dotted path, for messages.

        Raises:
            UserError: unknown name or option; the message suggests the nearest one.
        """
        if isinstance(value, Named):
            return value
        options = {self.tag: value} if isinstance(value, str) else value
        noun = self.registry.noun
        if not isinstance(options, Mapping):
            raise UserError(
                f"expected {with_article(noun)} as a mapping with the key {self.tag}, found {shown(value)}", field=field
            )
        options = dict(options)
        try:
            name, part = part_of(self.registry, options, self.tag)
        except UserError as error:
            raise within(error, field) from None
        options.pop(self.tag, None)
        return Named(name, validated(part, options, field=field))

    def write(self, part: Named[Part]) -> dict[str, Any]:
        """The mapping from which :meth:`read` makes ``part`` again."""
        return {self.tag: part.name, **part.spec.model_dump(mode="json")}

    def json_schema(self) -> dict[str, Any]:
        """The schema of values that :meth:`read` accepts, for every registered part."""
        described = self.registry.of_each(self._schema)
        return {"anyOf": [{"enum": list(described)}, *described.values()]}

    def _schema(self, name: str, part: type[Part]) -> dict[str, Any]:
        return tagged(part.model_json_schema(mode="validation"), self.tag, name, part)


def within(error: UserError, field: str) -> UserError:
    """The same error with ``field`` as the start of its path.

    >>> str(within(UserError("expected more", field="local.lr"), "methods.2"))
    'methods.2.local.lr: expected more'
    """
    path = f"{field}.{error.field}" if error.field else field
    return UserError(error.message, field=path, file=error.file)


class BuildFault(EdgeflError):  # noqa: N818  (exit code 1 calls it a fault)
    """A part that a scenario names raised an error when it was built; the original one is the cause.

    Args:
        field: the part's place in the scenario.
        error: what was raised.
    """

    def __init__(self, field: str, error: BaseException) -> None:
        super().__init__(f"{field}: this part cannot be built: {in_words(error)}")


@contextmanager
def built_at(field: str) -> Iterator[None]:
    """Errors raised in the block, where a part is built, are reported for this field.

    Raises:
        UserError: the part does not fit.
        BuildFault: it raised an error.
    """
    try:
        yield
    except UserError as error:
        if error.file is not None:  # the error is in another file, which the message must name
            error = UserError(f"{error.file}: {error.message}", field=error.field)
        raise within(error, field) from None
    except BaseException as error:
        passes = EdgeflError, ValidationError, KeyboardInterrupt
        if isinstance(error, passes) and not isinstance(error, WrongAnswer):
            raise
        raise BuildFault(field, error) from error


MODEL_SECTION: Section[ModelSpec] = Section("name", MODELS)
SELECTION_SECTION: Section[SelectorSpec] = Section("kind", SELECTORS)
BANDWIDTH_SECTION: Section[BandwidthSpec] = Section("kind", ALLOCATIONS)
TASK_SECTION: Section[TaskPart] = Section("kind", TASKS)
SCHEDULER_SECTION: Section[BlockSchedulerSpec] = Section("kind", BLOCK_SCHEDULERS)


def _read_data(value: Any) -> DataSpec:
    try:
        return data_set(value)
    except UserError as error:
        raise within(error, "data") from None


def _read_model(value: Any) -> Named[ModelSpec]:
    return MODEL_SECTION.read(value, "model")


def _read_selection(value: Any) -> Named[SelectorSpec]:
    return SELECTION_SECTION.read(value, "training.selection")


def _read_bandwidth(value: Any) -> Named[BandwidthSpec]:
    return BANDWIDTH_SECTION.read(value, "training.bandwidth")


def _read_task(value: Any) -> TaskPart:
    try:
        return value if isinstance(value, TaskPart) else chosen_part(TASKS, value)
    except UserError as error:
        raise within(error, "task") from None


Task = Annotated[SerializeAsAny[TaskPart], PlainValidator(_read_task, json_schema_input_type=Any)]
"""``task:``, a kind, or a mapping with kind and options."""

Data = Annotated[SerializeAsAny[DataSpec], PlainValidator(_read_data, json_schema_input_type=Any)]
"""``data:``, with name and options."""

Model = Annotated[
    Named[ModelSpec],
    PlainValidator(_read_model, json_schema_input_type=Any),
    PlainSerializer(MODEL_SECTION.write, return_type=dict[str, Any]),
]
"""``model:``, with name and options."""

Selection = Annotated[
    Named[SelectorSpec],
    PlainValidator(_read_selection, json_schema_input_type=Any),
    PlainSerializer(SELECTION_SECTION.write, return_type=dict[str, Any]),
]
"""``training.selection:``, with kind and options."""

Bandwidth = Annotated[
    Named[BandwidthSpec],
    PlainValidator(_read_bandwidth, json_schema_input_type=Any),
    PlainSerializer(BANDWIDTH_SECTION.write, return_type=dict[str, Any]),
]
"""``training.bandwidth:``, with kind and options."""
