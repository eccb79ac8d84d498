"""The ``codec:`` of a scenario: the codecs of a method's uplink and downlink."""

from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, field_validator

from edgefl.errors import UserError
from edgefl.methods.codecs.base import CODECS, Codec
from edgefl.methods.codecs.none import NoCodec
from edgefl.options import Component
from edgefl.registry import chosen_part


def codec(value: Any) -> Codec:
    """A codec from its name, or from a mapping with ``kind`` and options.

    >>> codec({"kind": "quantise", "bits": 4})
    Quantise(bits=4, scale='tensor', rounding='nearest')
    """
    if isinstance(value, Codec):
        return value
    return chosen_part(CODECS, value)


def _read(value: Any) -> Codec:
    try:
        return codec(value)
    except UserError as error:
        raise ValueError(str(error)) from None


def _write(part: Codec) -> dict[str, Any]:
    name = CODECS.name_of(type(part)) or type(part).__name__
    return {"kind": name, **part.model_dump(mode="json")}


class _Schema:
    """The JSON schema of every suitable codec, computed on request; not every one is suitable for whole ``models``."""

    def __init__(self, *, models: bool) -> None:
        self._models = models

    def __get_pydantic_json_schema__(self, _schema: Any, _handler: Any) -> dict[str, Any]:
        def schema(name: str, part: type[Codec]) -> dict[str, Any]:
            described = part.model_json_schema()
            described["properties"] = {"kind": {"const": name}, **described.get("properties", {})}
            described["required"] = ["kind", *described.get("required", [])]
            return described

        described = CODECS.of_each(schema)
        suitable = [name for name in described if not (self._models and CODECS[name].for_changes)]
        return {"anyOf": [{"enum": suitable}, *(described[name] for name in suitable)]}


_Choice = Annotated[Codec, PlainValidator(_read), PlainSerializer(_write, return_type=dict[str, Any])]
OfChanges = Annotated[_Choice, _Schema(models=False)]
OfModels = Annotated[_Choice, _Schema(models=True)]


class Codecs(Component):
    """The codecs of a method's traffic in each direction."""

    up: OfChanges = Field(default=NoCodec(), description="codec of the uplink: a kind and its options")
    down: OfModels = Field(default=NoCodec(), description="codec of the downlink: a kind and its options")

    @field_validator("down")
    @classmethod
    def _of_models(cls, chosen: Codec) -> Codec:
        if chosen.for_changes:
            raise ValueError("this codec sends few of the numbers, which suits updates but not models; use it for up")
        return chosen
