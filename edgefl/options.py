"""The base classes of all sections of scenarios, profiles and summaries, and of all parts that a scenario can name."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Discriminator


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


class Component(Options):
    """A part of a method, model or data set; its fields are the options that a scenario may set.

    Parts are values: frozen, comparable and stateless. State that changes during a run (momentum, control variates) is
    passed in and returned as tensors.
    """

    # names of packages, besides edgefl's requirements, on which the results of a built-in part depend
    packages: ClassVar[tuple[str, ...]] = ()
