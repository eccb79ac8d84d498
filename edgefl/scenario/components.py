"""Sections that name a registered part and set its options: ``model: {name: cnn, width: 16}``."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, PlainSerializer, PlainValidator, SerializeAsAny, ValidationError

from edgefl.data.spec import DataSpec, data_set
from edgefl.errors import EdgeflError, UserError, WrongAnswer, in_words
from edgefl.models.registry import MODELS, ModelSpec
from edgefl.registry import Registry, Unread, chosen_part, part_of, tagged
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
    """A registered part by name, with its options set."""

    name: str
    spec: Part


@dataclass(frozen=True)
class Section(Generic[Part]):
    """Reads, writes and describes a section that names a part of a registry under the key ``tag``."""

    tag: str
    registry: Registry[type[Part]]

    def read(self, value: Any, field: str) -> Named[Part]:
        """A part from ``{tag: name, option: value…}``, or from its name; a part that was read already is unchanged.

        The name may be left out where another key means it; see :func:`~edgefl.registry.part_of`. ``field`` is the
        section's dotted path, for messages.
        """
        if isinstance(value, Named):
            return value
        options = {self.tag: value} if isinstance(value, str) else value
        noun = self.registry.noun
        if not isinstance(options, Mapping):
            message = f"expected {with_article(noun)} as a mapping with the key {self.tag}, found {shown(value)}"
            raise UserError(message, field=field)
        options = dict(options)
        try:
            name, part = part_of(self.registry, options, self.tag)
        except UserError as error:
            raise within(error, field) from None
        options.pop(self.tag, None)
        return Named(name, validated(part, options, field=field, known=(self.tag,)))

    def write(self, part: Named[Part]) -> dict[str, Any]:
        return {self.tag: part.name, **part.spec.model_dump(mode="json")}

    def json_schema(self) -> dict[str, Any]:
        """The schema of values that :meth:`read` accepts, for every registered part."""
        described = self.registry.of_each(self._schema)
        own = [] if self.registry.base is None else [Unread.model_json_schema()]
        return {"anyOf": [{"enum": list(described)}, *described.values(), *own]}

    def _schema(self, name: str, part: type[Part]) -> dict[str, Any]:
        return tagged(part.model_json_schema(mode="validation"), self.tag, name, part)


def within(error: UserError, field: str) -> UserError:
    """The same error with ``field`` as the start of its path, if it is not so already.

    >>> str(within(UserError("expected more", field="local.lr"), "methods.2"))
    'methods.2.local.lr: expected more'
    """
    path = f"{field}.{error.field}" if error.field else field
    known = f"{error.field}.".startswith(f"{field}.")
    return UserError(error.message, field=error.field if known else path, file=error.file)


class BuildFault(EdgeflError):  # noqa: N818  (exit code 1 calls it a fault)
    """The part at ``field`` of a scenario raised ``error`` when it was built."""

    def __init__(self, field: str, error: BaseException) -> None:
        super().__init__(f"{field}: this part cannot be built: {in_words(error)}")


@contextmanager
def errors_at(field: str) -> Iterator[None]:
    """Errors of the user that are raised in the block are reported for this field."""
    try:
        yield
    except UserError as error:
        if error.file is not None:  # the error is in another file, which the message must name
            error = UserError(f"{error.file}: {error.message}", field=error.field)
        raise within(error, field) from None


@contextmanager
def built_at(field: str) -> Iterator[None]:
    """The same where a part is built; other errors are reported as :class:`BuildFault`."""
    try:
        with errors_at(field):
            yield
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


def _read_at(field: str, read: Callable[[Any], Any]) -> PlainValidator:
    def reader(value: Any) -> Any:
        try:
            return read(value)
        except UserError as error:
            raise within(error, field) from None

    return PlainValidator(reader, json_schema_input_type=Any)


Task = Annotated[SerializeAsAny[TaskPart], _read_at("task", partial(chosen_part, TASKS))]

Data = Annotated[SerializeAsAny[DataSpec], _read_at("data", data_set)]


def _reads(section: Section[Any], field: str) -> PlainValidator:
    return PlainValidator(partial(section.read, field=field), json_schema_input_type=Any)


def _writes(section: Section[Any]) -> PlainSerializer:
    return PlainSerializer(section.write, return_type=dict[str, Any])


Model = Annotated[Named[ModelSpec], _reads(MODEL_SECTION, "model"), _writes(MODEL_SECTION)]

Selection = Annotated[Named[SelectorSpec], _reads(SELECTION_SECTION, "training.selection"), _writes(SELECTION_SECTION)]

Bandwidth = Annotated[Named[BandwidthSpec], _reads(BANDWIDTH_SECTION, "training.bandwidth"), _writes(BANDWIDTH_SECTION)]
