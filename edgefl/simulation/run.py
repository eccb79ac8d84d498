"""One run from the first event to the last."""

import gc
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import EdgeflError
from edgefl.record.events import EventLog, Listener, detail
from edgefl.record.figures import Totals
from edgefl.record.rounds import RoundRow
from edgefl.record.summary import Absent, BatteryUse
from edgefl.simulation.accounts import Limits
from edgefl.simulation.protocols.base import Course
from edgefl.simulation.rounds import RoundBook, RoundOptimum
from edgefl.simulation.setup import Setup, Testbed
from edgefl.simulation.world import World
from edgefl.torch_settings import neutral_torch
from edgefl.training.faults import NotTrained, PartFault
from edgefl.training.job import Evaluation


@contextmanager
def only_new_objects_collected() -> Generator[None]:
    """Let the cyclic collector examine only objects of this block, which saves a fifth of a large round's time."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


MakeCourse = Callable[[World], tuple[RoundBook, Course]]


@dataclass(frozen=True)
class Outcome:
    """The result of a run, with the work in progress at its end; ``untrained``: why a recording did not suffice."""

    reason: str
    rounds: int
    seconds: float
    spent: Totals
    final: Evaluation
    best: float
    ema: float
    rows: list[RoundRow]
    limits: Limits
    fault: PartFault | None = None
    timeouts: bool = False
    untrained: str | None = None
    batteries: dict[str, BatteryUse] | None = None
    absent: Absent | None = None
    breakdown: Mapping[str, Mapping[str, Mapping[str, float]]] | None = None  # of grams and euros
    secure: Mapping[str, Any] | None = None  # what secure aggregation sent and computed
    privacy: Mapping[str, Any] | None = None  # what ε is about


@neutral_torch()
def simulate_run(
    setup: Setup,
    course: MakeCourse | None = None,
    *,
    testbed: Testbed | None = None,
    optimum: RoundOptimum | None = None,
) -> Outcome:
    """Run one method with one seed to its end.

    ``course`` makes what happens, and the book of rounds (None: the protocol's); a ``testbed`` has real time and links;
    rounds are compared with the ``optimum``. Errors of the world or a listener are raised with a note of the place.
    """
    world = World(setup, testbed)
    if course is None:
        book = RoundBook(world, optimum)
        protocol = setup.protocol.course(world, book)
    else:
        book, protocol = course(world)
    world.env.process(protocol.run())
    reason: str = "fault"
    fault, untrained = None, None
    with _noting_where(world, book):
        try:
            with only_new_objects_collected():
                # No events are left, so every transfer waits for a link with zero capacity.
                reason = world.env.run_until(world.stopped) or "stalled"
        except NotTrained as missing:
            reason, untrained = "trained", str(missing)
        except PartFault as raised:
            fault = raised
        protocol.break_off()
        world.traffic.power.settle()
        if fault is None:
            try:
                book.evaluate_last()
                for listener in setup.listeners:
                    listener.simulated(book.rounds_done)
            except PartFault as raised:
                fault = raised
        if fault is not None:
            reason = "fault"
            world.wrote("fault", fault.round, fault.client, detail=detail(reason=str(fault)))
        note = "" if untrained is None else detail(reason=untrained)
        world.wrote("stop", book.rounds_done - 1, item=reason, detail=note)
    setup.log.flush()
    world.accounts.totals |= {"rounds": book.rounds_done, "seconds": world.env.now}
    return Outcome(
        reason=reason,
        rounds=book.rounds_done,
        seconds=world.env.now,
        spent=world.accounts.totals,
        final=book.latest,
        best=book.best,
        ema=book.ema,
        rows=book.rows,
        limits=setup.limits,
        fault=fault,
        timeouts=setup.timeouts is not None,
        untrained=untrained,
        batteries=world.traffic.power.use(),
        absent=absent_from(world.seen, world.picks),
        breakdown=None if (meter := world.traffic.power.meter) is None else meter.breakdown,
        privacy=None if setup.ledger is None else setup.ledger.written(),
        secure=None if setup.secure is None else world.tally.written(setup.secure, setup.picked, setup.entries),
    )


def absent_from(seen: NDArray[np.bool_], picks: NDArray[np.int64]) -> Absent | None:
    """The clients that never took part, from whether each could be chosen and how often it was, ``[clients]``.

    With few picks, chance leaves clients out; with n (5 + ln n) picks of n clients, in less than one run in a hundred.

    >>> absent_from(np.array([True, True, False]), np.array([19, 0, 0]))
    Absent(away=1, unselected=1)
    >>> absent_from(np.ones(2, np.bool_), np.array([1, 0])) is None
    True
    """
    many = picks.sum() >= len(picks) * (5 + math.log(len(picks)))
    found = Absent(away=int((~seen).sum()), unselected=int((seen & (picks == 0)).sum()) if many else 0)
    return found if seen.any() and (found.away or found.unselected) else None


def unbegun_run(label: str, seed: int, limits: Limits, listeners: Sequence[Listener], fault: PartFault) -> Outcome:
    """The outcome of a run whose setup failed; the listeners receive its log."""
    log = EventLog(listeners)
    log.write(0.0, "run", item=label, value=seed)
    log.write(0.0, "fault", fault.round, fault.client, detail=detail(reason=str(fault)))
    log.write(0.0, "stop", -1, item="fault")
    log.flush()
    nothing = Evaluation(math.nan, math.nan)
    return Outcome("fault", 0, 0.0, Totals(), nothing, math.nan, math.nan, [], limits, fault)


@contextmanager
def _noting_where(world: World, book: RoundBook) -> Iterator[None]:
    """An error that is raised inside gets a note with the method, the seed, the round and the virtual time."""
    try:
        yield
    except EdgeflError:
        raise
    except Exception as error:
        label, seed = world.setup.label, world.setup.seed
        seconds = f"{world.env.now:g} s of virtual time"
        error.add_note(f"method '{label}', seed {seed}, round {book.rounds_done + 1}, {seconds}")
        raise
