"""One run from the first event to the last."""

from __future__ import annotations

from dataclasses import dataclass

from edgefl.learning.job import Evaluation
from edgefl.simulation.asynchronous import Asynchronous
from edgefl.simulation.hierarchical import Hierarchical
from edgefl.simulation.ledger import Ledger
from edgefl.simulation.limits import Limits
from edgefl.simulation.protocol_specs import AsynchronousSpec, HierarchicalSpec
from edgefl.simulation.rounds import RoundBook
from edgefl.simulation.setup import RoundRow, Setup
from edgefl.simulation.synchronous import Synchronous
from edgefl.simulation.world import World


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        reason: why it ended: ``rounds``, ``target``, a kind of budget, ``stalled`` or ``diverged``.
        rounds: rounds that ended; each made a model.
        seconds: virtual time at the end.
        spent: totals, with what was under way when the run ended.
        final: evaluation of the last model; ``best`` and ``ema`` are accuracies.
        rows: the rounds.
        limits: budgets and targets as they stand at the end.
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


def simulate_run(setup: Setup) -> Outcome:
    """Run one method with one seed to its end."""
    world = World(setup)
    book = RoundBook(world)
    protocol = _protocol(world, book)
    world.env.process(protocol.run())
    reason = str(world.env.run(until=world.stopped))
    protocol.break_off()
    world.radios.settle()
    final = book.evaluate_last()
    world.wrote("stop", book.rounds_done - 1, item=reason)
    world.log.flush()
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
    )


def _protocol(world: World, book: RoundBook) -> Synchronous | Asynchronous | Hierarchical:
    spec = world.setup.protocol
    if isinstance(spec, AsynchronousSpec):
        return Asynchronous(world, book, spec)
    if isinstance(spec, HierarchicalSpec):
        return Hierarchical(world, book)
    return Synchronous(world, book, spec)
