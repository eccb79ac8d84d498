"""What follows the updates of a round within it: the server's aggregation, and the evaluation of the round's model."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from edgefl.cost.measure import Operator
from edgefl.fleet import compute_joules, step_seconds
from edgefl.methods.parts.payload import BASE, Downlink, Part
from edgefl.network.topology import Node
from edgefl.randomness import generator
from edgefl.record.events import detail
from edgefl.simulation.participation import Life, Participation
from edgefl.simulation.setup import RoundEvaluation
from edgefl.simulation.traffic import Delivery
from edgefl.simulation.world import World
from edgefl.training.job import JobId, TrainingJob

FIRST_DISPATCH = 2_000_000_000
"""The number of a client's evaluation in round 0: larger than that of a job, whose random draws it must not change."""

ANSWER = (Part("metrics", 8, 0),)
"""A loss and a metric, as float32."""


class Evaluator(Participation):
    """A client that receives the round's model, applies it to its test images, and returns a loss and a metric."""

    def __init__(self, world: World, client: int, round: int, images: int, on_left: Callable[[Any], None]) -> None:
        setup = world.setup
        whole = setup.sizes_of(world.level_of(client))
        parts = [Part("model", whole.model_bytes, round + 1)]
        if setup.base_bytes and not world.clients[client].has_base:
            parts.insert(0, Part(BASE, setup.base_bytes, 0))
        work = world.forward(client, round, images)
        id = JobId(setup.label, setup.seed, client, FIRST_DISPATCH + round)
        job = TrainingJob(id=id, version=round + 1, round=round, alpha=work.alpha, steps=0, previous=None)
        downlink = Downlink(tuple(parts), whole.blocks)
        super().__init__(world, client, round, downlink, work, on_left=on_left, job=job)
        self._ahead = sum(part.bytes for part in parts), ANSWER[0].bytes, work.seconds

    def _compute(self) -> Generator[simpy.Event, object, bool]:
        self.phase = "compute"
        self.world.traffic.power.phase(self.client, self.work.watts)
        yield self._env.timeout(self.work.seconds)
        self._break_off_computing()
        return True

    def _break_off_computing(self) -> None:
        self.world.evaluated(self.client, self.round, self.work, self._end_phase(), self.job.id.dispatch)

    def _received(self) -> None:
        self.world.clients[self.client].has_base = True

    def _returned(self) -> Sequence[Part]:
        return ANSWER

    def _arrived(self) -> None:
        self.lose("evaluated")


@dataclass
class Evaluating:
    """The end of each round of a run: the server aggregates and evaluates, then clients evaluate, as in Flower.

    The server takes its device's seconds, if it has one. Clients are drawn from those available then; the round waits
    for all that stay. Where cells average, each receives the model once and forwards it.
    """

    world: World
    _evaluators: list[Evaluator] = field(default_factory=list)
    _relays: list[Delivery] = field(default_factory=list)
    _doing: tuple[str, int, float] | None = None  # what the server, or clients, compute, in which round, since when
    _able: NDArray[np.bool_] | None = None  # clients with samples, and memory for a step on a batch of them, [clients]

    def run(self, round: int, updates: int) -> Life:
        """``updates`` arrived at the server in the round."""
        setup = self.world.setup
        evaluation = setup.evaluation if setup.evaluates(round) else None
        if setup.server_device is not None:
            sizes = setup.sizes_plain or setup.sizes
            # One pass over each update, with a multiplication and an addition for each number, and one over the model.
            moved = float((updates + 1) * sizes.model_bytes)
            mean = Operator("mean", updates * sizes.model_bytes / 2, moved, count=1)
            yield from self.serve("aggregation", round, step_seconds(setup.server_device, [mean]))
            if evaluation is not None and evaluation.on_server:
                work = self.world.work.forward(setup.server_device, setup.sizes.blocks, evaluation.on_server)
                yield from self.serve("evaluation", round, work.seconds)
        if evaluation is not None and evaluation.share:
            self._doing = "clients", round, self.world.env.now
            yield from self._on_clients(round, evaluation)
            self._ended()

    def break_off(self) -> None:
        """The run ends: abort what is in progress."""
        self._ended()
        for relay in self._relays:
            self.world.traffic.cancel(relay)
        for evaluator in self._evaluators:
            evaluator.drop("unfinished")

    def serve(self, what: str, round: int, seconds: float) -> Life:
        """The server computes."""
        self._doing = what, round, self.world.env.now
        yield self.world.env.timeout(seconds)
        self._ended()

    def _ended(self) -> None:
        """Charge what was in progress; the server's joules are in the log, and not among those of the devices."""
        if self._doing is None:
            return
        (what, round, began), self._doing = self._doing, None
        seconds, server = self.world.env.now - began, self.world.setup.server_device
        if what != "clients" and server is not None:
            facts = detail(joules=compute_joules(server, seconds))
            self.world.wrote("server", round, item=what, seconds=seconds, detail=facts)
        figure = "evaluation_seconds" if what == "clients" else "server_seconds"
        self.world.accounts.totals.charge(figure, seconds)

    def _on_clients(self, round: int, evaluation: RoundEvaluation) -> Life:
        world = self.world
        if self._able is None:
            work = (world.forward(client, round, images) for client, images in enumerate(evaluation.images.tolist()))
            self._able = np.array([each.samples > 0 and each.fits for each in work], np.bool_)
        available = np.flatnonzero(world.presence.available() & self._able)
        if not len(available):
            return
        number = max(1, int(evaluation.share * len(available) + 0.5))
        chosen = generator(world.setup.seed, "evaluation", round).choice(available, number, replace=False)
        gates: dict[Node, list[Evaluator]] = {}
        done, present = world.env.event(), set(chosen.tolist())

        def left(evaluator: Evaluator) -> None:
            present.discard(evaluator.client)
            if not present and not done.triggered:
                done.succeed()

        for client in sorted(present):
            evaluator = Evaluator(world, client, round, int(evaluation.images[client]), left)
            gates.setdefault(world.traffic.gate(client), []).append(evaluator)
        self._evaluators, self._relays = [each for those in gates.values() for each in those], []
        for gate, evaluators in gates.items():
            world.env.process(self._from(gate, evaluators, round))
        yield done
        self._evaluators = []

    def _from(self, gate: Node, evaluators: Sequence[Evaluator], round: int) -> Life:
        """The evaluators of one gate, the server or a cell, which has to receive the model first."""
        if gate != "server":
            parts = self.world.lacking(gate, (each.downlink for each in evaluators))
            relay = self.world.traffic.relay("server", gate, parts, round)
            self._relays.append(relay)
            yield relay
            if relay.failed:
                for each in evaluators:
                    each.quit("backhaul")
                return
            self.world.cells_with_base.add(gate)
        for each in evaluators:
            each.begin()
