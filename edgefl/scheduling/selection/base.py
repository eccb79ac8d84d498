"""The interface of selectors, which pick the clients of a round."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, NamedTuple, NoReturn, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefl.errors import WrongAnswer, nearest, one_line
from edgefl.methods.fits import Need
from edgefl.options import Options
from edgefl.registry import Registry, chosen_part


class Foreseen(NamedTuple):
    """Seconds of a round with the whole model, from now, alone on their paths, by client; infinite where down."""

    download: NDArray[np.float64]
    compute: NDArray[np.float64]
    upload: NDArray[np.float64]


class Charge(NamedTuple):
    """Batteries of clients, in parts of their capacity; one entry for each client."""

    level: NDArray[np.float64]  # the charge now; 1 without a battery
    used: NDArray[np.float64]  # the charge that a whole round is predicted to use; 0 without a battery


def _not_provided(*_: object) -> NoReturn:
    raise WrongAnswer("it used a fact that this simulation does not provide, or that is not among its `reads`")


class Facts(NamedTuple):
    """Facts about the clients for a selector."""

    label_support: NDArray[np.bool_] = np.zeros((0, 0), np.bool_)  # which classes each client holds [clients, classes]
    foreseen: Callable[[NDArray[np.int64]], Foreseen] = _not_provided
    data_sizes: NDArray[np.int64] = np.zeros(0, np.int64)  # the training images n_k of each client [clients]
    now: float = 0.0  # seconds since the run's start
    # a function from clients' numbers and the begin and end of a window, in seconds from now, to the part of the
    # window in which each client will be available
    availability: Callable[[NDArray[np.int64], float, float], NDArray[np.float64]] = _not_provided
    charge: Callable[[NDArray[np.int64]], Charge] = _not_provided
    # a function from different clients' numbers, ascending, and a number of images (None: all) to the mean loss of
    # the model that the round begins with, on as many of each client's training images. These clients are charged for
    # it: they download the model before the round and compute a forward pass. Only in synchronous rounds.
    local_losses: Callable[[NDArray[np.int64], int | None], NDArray[np.float64]] = _not_provided


class SelectionFeedback(NamedTuple):
    """The results of a round for its aggregated clients; arrays with one entry for each client, in any order."""

    client: NDArray[np.int64]
    loss: NDArray[np.float64]  # mean cross-entropy of the local path over the last local epoch
    samples: NDArray[np.int64]  # the clients' training images n_k
    seconds: NDArray[np.float64]  # the client's time from the start of its download to the end of its upload


class Selector(ABC):
    """One run's selector."""

    reads: ClassVar[frozenset[str]] = frozenset()
    """The inputs that its decisions depend on, in addition to the available clients: names of :class:`Facts` and of
    arrays of :class:`SelectionFeedback`."""

    @classmethod
    def check_reads(cls) -> None:
        """Raise WrongAnswer if ``reads`` has a name that is none."""
        known = {*Facts._fields, *SelectionFeedback._fields}
        for name in sorted(cls.reads - known):
            raise WrongAnswer(f"its reads has '{name}'; {nearest(name, known)}")

    @classmethod
    def learns(cls) -> bool:
        """True if it reads feedback of finished rounds; such a selector cannot pick before a round has ended."""
        return bool(cls.reads & set(SelectionFeedback._fields))

    @classmethod
    def waits(cls) -> bool:
        """True if it needs the results of the round before, and so cannot pick while that round still runs."""
        return cls.learns() or cls.asks()

    @classmethod
    def asks(cls) -> bool:
        """True if it asks clients for losses, which delays the round."""
        return "local_losses" in cls.reads

    @classmethod
    def needs(cls) -> frozenset[Need]:
        """What it needs of its scenario; see :mod:`edgefl.methods.fits`."""
        needs: set[Need] = {"classes"} if "label_support" in cls.reads else set()
        return frozenset(needs | {"rounds"} if cls.asks() else needs)

    @abstractmethod
    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        """The clients of a round (from 0), ascending; called once a round, possibly for a round that never begins.

        A selector that does not read ``foreseen`` may be called before the last round's model is evaluated.
        ``available`` is ascending; if it has fewer than ``cohort`` clients, all of them are picked.
        """

    def candidates(self) -> NDArray[np.int64] | None:
        """The only clients that it can pick; ``None``: any. If they are gone for ever, the run stalls."""
        return None

    def observe(self, feedback: SelectionFeedback) -> None:  # noqa: B027  (not every selector learns)
        """Learn from a finished round, before the next :meth:`pick`; called if :meth:`learns` returns True."""


def checked_cohort(answer: ArrayLike, available: NDArray[np.int64], cohort: int) -> list[int]:
    """The clients that :meth:`Selector.pick` returned, ascending; WrongAnswer if they are not different available ones.

    >>> checked_cohort([2, 0], np.array([0, 2, 3]), 2)
    [0, 2]
    """
    picked = np.asarray(answer)
    if picked.size > cohort or len(set(picked.tolist())) < picked.size or not np.isin(picked, available).all():
        raise WrongAnswer(f"it returned {one_line(answer)}; expected at most {cohort} different available clients")
    return [int(client) for client in np.sort(picked)]


class SelectorSpec(Options):
    """A selector as a scenario describes it; its fields are the options."""

    @abstractmethod
    def start(self, seed: int) -> Selector:
        """The selector of a run with this seed; the same for all methods, so that all have the same cohorts."""


Spec = TypeVar("Spec", bound=SelectorSpec)


class SeededSelector(Selector, Generic[Spec]):
    """A selector that keeps the seed of its run and its options."""

    def __init__(self, seed: int, spec: Spec) -> None:
        self._seed, self._spec = seed, spec


SELECTORS: Registry[type[SelectorSpec]] = Registry(
    "selection", package="edgefl.scheduling.selection", group="edgefl.selectors", base=SelectorSpec
)
"""Every selector by name; ``edgefl.selectors`` entry points add to it."""


def selection(entry: str | Mapping[str, Any]) -> SelectorSpec:
    """The spec of a name or of a mapping with ``kind`` and options."""
    return chosen_part(SELECTORS, entry)
