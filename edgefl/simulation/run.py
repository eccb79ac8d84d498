"""One run from the first event to the last."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgefl.learning.faults import PartFault
from edgefl.learning.job import Evaluation
from edgefl.simulation.asynchronous import Asynchronous
from edgefl.simulation.collector import what_was_there_left_alone
from edgefl.simulation.hierarchical import Hierarchical
from edgefl.simulation.ledger import Ledger
from edgefl.simulation.limits import Limits
from edgefl.simulation.log import detail
from edgefl.simulation.protocol_specs import AsynchronousSpec, HierarchicalSpec
from edgefl.simulation.rounds import RoundBook
from edgefl.simulation.setup import RoundRow, Setup
from edgefl.simulation.synchronous import Synchronous
from edgefl.simulation.world import World


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        reason: why it ended: ``rounds``, ``target``, a kind of budget, ``stalled``, ``diverged`` or ``fault``.
        rounds: rounds that ended; each made a model.
        seconds: virtual time at the end.
        spent: totals, with what was under way when the run ended.
        final: evaluation of the last model; ``best`` and ``ema`` are accuracies.
        rows: the rounds.
        limits: budgets and targets as they stand at the end.
        fault: what a part of the method raised, where that ended the run.
    """

    reason: str
    rounds: int
    seconds: float
    spent: Ledger
    final: Evaluation
    best: float
    ema: float
    rows: list[RoundRow]
    limits: Limits
    fault: PartFault | None = None


def simulate_run(setup: Setup) -> Outcome:
    """Run one method with one seed to its end."""
    world = World(setup)
    book = RoundBook(world)
    protocol = _protocol(world, book)
    world.env.process(protocol.run())
    fault = None
    try:
        with what_was_there_left_alone():
            reason = str(world.env.run(until=world.stopped))
    except PartFault as raised:
        reason, fault = "fault", _original(raised)
        world.wrote("fault", fault.round, fault.client, note=detail(reason=str(fault)))
    except RuntimeError:
        if not math.isinf(world.env.peek()):
            raise
        reason = "stalled"  # nothing will ever happen again: every transfer waits at a link without capacity
    protocol.break_off()
    world.radios.settle()
    final = book.latest if fault is not None else book.evaluate_last()
    world.wrote("stop", book.rounds_done - 1, item=reason)
    setup.log.flush()
    return Outcome(
        reason=reason,
        rounds=book.rounds_done,
        seconds=world.now,
        spent=world.ledger,
        final=final,
        best=book.best,
        ema=book.ema,
        rows=book.rows,
        limits=setup.limits,
        fault=fault,
    )


def _original(fault: PartFault) -> PartFault:
    """What was raised, where SimPy has handed on copies of it."""
    while isinstance(fault.__cause__, PartFault):
        fault = fault.__cause__
    return fault


def _protocol(world: World, book: RoundBook) -> Synchronous | Asynchronous | Hierarchical:
    spec = world.setup.protocol
    if isinstance(spec, AsynchronousSpec):
        return Asynchronous(world, book, spec)
    if isinstance(spec, HierarchicalSpec):
        return Hierarchical(world, book, spec)
    return Synchronous(world, book, spec)
