"""What ``data`` may be in a scenario: any registered data set, told apart by its name."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from edgefl.learning.data.spec import DATA_SETS, DataSpec


def data_set_union() -> Any:
    """The type of a scenario's ``data`` section: the data sets, built-in and from plug-ins, told apart by ``name``.

    >>> from pydantic import TypeAdapter
    >>> TypeAdapter(data_set_union()).validate_python({"name": "digits", "clients": 10}).clients
    10
    """
    members = functools.reduce(operator.or_, (part for _, part in DATA_SETS))
    return Annotated[members, Field(discriminator="name")]


if TYPE_CHECKING:
    AnyData = DataSpec
else:
    AnyData = data_set_union()
