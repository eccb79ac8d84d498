"""The ``codec:`` of a scenario: the codecs of a method's uplink and downlink, and what clients keep for them."""

from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, field_validator
from torch import Tensor

from edgefl.methods.codecs.base import CODECS, Codec, NoCodec
from edgefl.methods.parts.client_state import ClientState, State
from edgefl.options import Component
from edgefl.registry import chosen_part, tagged
from edgefl.validation import as_validator


def codec(value: Any) -> Codec:
    """A codec from its name, or from a mapping with ``kind`` and options.

    >>> codec({"kind": "quantise", "bits": 4})
    Quantise(bits=4, scale='tensor', rounding='nearest')
    """
    return chosen_part(CODECS, value)


def _write(part: Codec) -> dict[str, Any]:
    name = CODECS.name_of(type(part)) or type(part).__name__
    return {"kind": name, **part.model_dump(mode="json")}


class _Schema:
    """The JSON schema of every suitable codec, computed on request; not every one is suitable for whole ``models``."""

    def __init__(self, *, models: bool) -> None:
        self._models = models

    def __get_pydantic_json_schema__(self, _schema: Any, _handler: Any) -> dict[str, Any]:
        described = CODECS.of_each(lambda name, part: tagged(part.model_json_schema(), "kind", name, part))
        suitable = [name for name in described if not (self._models and CODECS[name].for_changes)]
        return {"anyOf": [{"enum": suitable}, *(described[name] for name in suitable)]}


_Choice = Annotated[Codec, PlainValidator(as_validator(codec)), PlainSerializer(_write, return_type=dict[str, Any])]
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


class Unsent(ClientState):
    """e, the residual of error feedback ``[parameter_count]``; zero at first."""

    vectors = ("unsent",)


class LastReceived(ClientState):
    """The last sent version of each block ``[size]``, known to both sides: the base of an encoded change."""

    vectors = ("reference",)

    def first(self, received: Tensor, parameter_count: int) -> State:
        """Blocks that were not received are those of the initial model."""
        return {"reference": received}


def codec_state(codecs: Codecs, *, partial: bool) -> tuple[ClientState, ...]:
    """The client state that these codecs need; ``partial``: clients may be sent only some blocks."""
    unsent = (Unsent(),) if codecs.up.remembers else ()
    return (*unsent, LastReceived()) if partial and not codecs.up.exact else unsent
