"""The base classes of all sections of scenarios, profiles and summaries, and of all parts that a scenario can name."""

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Discriminator, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError


def kind_or(default: str | None = None, number: str | None = None) -> Discriminator:
    """The discriminator of a union by ``kind``; a mapping without it has the ``default``, and a number its own tag."""

    def kind(value: Any) -> Any:
        return value.get("kind", default) if isinstance(value, dict) else getattr(value, "kind", number)

    return Discriminator(kind)


def of_kind(value: Any) -> Any:
    """An entry that may also be the name of its kind, as a mapping."""
    return {"kind": value} if isinstance(value, str) else value


class Options(BaseModel):
    """A frozen model that allows no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="wrap")
    @classmethod
    def _naming_keys(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Add the valid keys to the error of an unknown one."""
        try:
            return handler(data)
        except ValidationError as error:
            lines: list[InitErrorDetails] = []
            for each in error.errors(include_url=False):
                context = each.get("ctx", {})
                if each["type"] == "extra_forbidden" and len(each["loc"]) == 1:
                    context = {"keys": tuple(info.alias or name for name, info in cls.model_fields.items())}
                kind = PydanticCustomError(each["type"], each["msg"], context)
                lines.append({"type": kind, "loc": each["loc"], "input": each["input"]})
            raise ValidationError.from_exception_data(cls.__name__, lines) from None


class Component(Options):
    """A part of a method, model or data set; its fields are the options that a scenario may set.

    Parts are values: frozen, comparable and stateless. State that changes during a run (momentum, control variates) is
    passed in and returned as tensors.
    """

    # names of packages, besides edgefl's requirements, on which the results of a built-in part depend
    packages: ClassVar[tuple[str, ...]] = ()
