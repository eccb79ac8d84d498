"""What a selector is: it picks the clients of a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from edgefl.errors import UserError
from edgefl.registry import Registry
from edgefl.validation import validated


class Facts(NamedTuple):
    """What a selector may know of the clients; ``None`` where the scenario's world cannot say.

    Attributes:
        label_support: which classes each client holds ``[clients, classes]``, True or False.
    """

    label_support: NDArray[np.bool_] | None = None


class Selector(ABC):
    """One run's selector."""

    reads: ClassVar[frozenset[str]] = frozenset()
    """The inputs that its decisions depend on beside who is available: names of :class:`Facts`."""

    @abstractmethod
    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        """The clients of round ``round``, ascending.

        Args:
            round: counts from 0.
            available: numbers of the clients that could take part, ascending.
            cohort: how many to pick; all that are available where there are fewer.
            facts: what may be known of clients.
        """


class SelectorSpec(BaseModel):
    """What a scenario says of a selector; its fields are the options."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def start(self, seed: int) -> Selector:
        """The selector of a run with this seed; the same one for all methods, so that all meet the same cohorts."""
        raise NotImplementedError


SELECTORS: Registry[type[SelectorSpec]] = Registry(
    "selection", package="edgefl.scheduling.selection", group="edgefl.selectors"
)
"""Every selector by name; ``edgefl.selectors`` entry points add to it."""


def selection(entry: str | Mapping[str, Any]) -> SelectorSpec:
    """The spec of a name or of a mapping with ``kind`` and options.

    Raises:
        UserError: unknown name or option.

    >>> selection("uniform")
    Uniform()
    """
    options = {"kind": entry} if isinstance(entry, str) else dict(entry)
    if "kind" not in options:
        raise UserError(f"this key is missing; expected one of: {', '.join(SELECTORS.names())}", field="kind")
    return validated(SELECTORS[str(options.pop("kind"))], options)
