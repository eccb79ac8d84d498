"""The base class of every part that a scenario can name: typed options and behaviour in one frozen class."""

from __future__ import annotations

from typing import ClassVar

from edgefl.options import Options


class Component(Options):
    """A part of a method, model or data set; its fields are the options that a scenario may set.

    Parts are values: frozen, comparable and stateless. State that changes during a run (momentum, control variates) is
    passed in and returned as tensors.

    Attributes:
        packages: names of packages, besides edgefl's requirements, on which the results of a built-in part depend.
    """

    packages: ClassVar[tuple[str, ...]] = ()
