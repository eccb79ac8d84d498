"""The base classes of all sections of scenarios, profiles and summaries, and of all parts that a scenario can name."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Discriminator, GetCoreSchemaHandler
from pydantic_core import PydanticKnownError
from pydantic_core.core_schema import CoreSchema, no_info_before_validator_function

_PARTS = ("schema", "items_schema", "keys_schema", "values_schema", "definitions", "lax_schema", "strict_schema")
"""Keys of a core schema that hold a schema or a list of them."""
_MAPPINGS = ("choices", "fields")
"""Keys that hold a list of schemas, or a mapping with schemas as values."""


def _whole(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticKnownError("int_type")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticKnownError("float_type")
    return value


_REFUSALS = {"int": _whole, "float": _number}


def _without_booleans(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_booleans(each) for each in schema]
    if isinstance(schema, tuple):  # a choice and its label
        return (_without_booleans(schema[0]), *schema[1:])
    if not isinstance(schema, dict):
        return schema
    refusal = _REFUSALS.get(schema.get("type", ""))
    if schema.get("type") == "literal" and any(type(each) is int for each in schema["expected"]):
        refusal = _whole  # true equals 1
    if refusal is not None:
        return no_info_before_validator_function(refusal, schema)
    if schema.get("type") == "function-before" and schema["function"]["function"] in _REFUSALS.values():
        return schema
    changed = dict(schema)
    for key in _PARTS:
        if key in schema:
            changed[key] = _without_booleans(schema[key])
    for key in _MAPPINGS:
        value = schema.get(key)
        if isinstance(value, dict):
            changed[key] = {name: _without_booleans(each) for name, each in value.items()}
        elif value is not None:
            changed[key] = _without_booleans(value)
    return changed


def kind_or(default: str | None = None) -> Discriminator:
    """The discriminator of a union by ``kind``; an entry that names none has the default."""

    def kind(value: Any) -> Any:
        return value.get("kind", default) if isinstance(value, dict) else getattr(value, "kind", None)

    return Discriminator(kind)


class Options(BaseModel):
    """A frozen model that allows no unknown keys, and no booleans as numbers.

    >>> class Local(Options):
    ...     batch: int = 32
    >>> Local(batch=True)
    Traceback (most recent call last):
    ...
    pydantic_core._pydantic_core.ValidationError: 1 validation error for Local
    batch
      Input should be a valid integer [type=int_type, input_value=True, input_type=bool]
    ...
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Pydantic's schema, changed so that booleans are not accepted as numbers."""
        schema: CoreSchema = _without_booleans(handler(source))
        return schema


class Component(Options):
    """A part of a method, model or data set; its fields are the options that a scenario may set.

    Parts are values: frozen, comparable and stateless. State that changes during a run (momentum, control variates) is
    passed in and returned as tensors.
    """

    # names of packages, besides edgefl's requirements, on which the results of a built-in part depend
    packages: ClassVar[tuple[str, ...]] = ()
