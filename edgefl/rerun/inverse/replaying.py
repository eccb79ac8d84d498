"""Simulate a method of a finished run again at a factor, until the condition is decided."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from edgefl.cost.measure import StepCost
from edgefl.experiment.recording import Recording
from edgefl.experiment.step_costs import StepKey
from edgefl.experiment.wiring import SharedWorld
from edgefl.fleet import fits
from edgefl.network.client_links import ClientLinks
from edgefl.record.listener import Listener
from edgefl.record.rounds import RoundRow
from edgefl.rerun.finished_run import FinishedRun
from edgefl.rerun.inverse.condition import Condition, Kind
from edgefl.rerun.inverse.questions import Name, with_batteries, with_larger_model, with_slower_devices
from edgefl.rerun.replayed_learner import TrainsDifferentlyError
from edgefl.rerun.retimed import retimed_setup
from edgefl.simulation.run import simulate_run
from edgefl.simulation.setup import Setup

Why = Kind | Literal["memory", "training"]
"""Why a condition is not met: the exceeded limit, a device has too little memory, or other training."""


class _DecidedError(Exception):
    """Raised when the value is reached or a limit is exceeded."""


class _Watching(Listener):
    """Adds up what the rounds cost until the condition is decided."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self.spent: dict[Kind, float] = {"seconds": 0.0, "bytes": 0.0, "joules": 0.0}
        self.met = False
        self.exceeded: Kind | None = None

    def round_ended(self, row: RoundRow) -> None:
        self.spent["seconds"] = row.seconds
        self.spent["bytes"] += row.bytes_down + row.bytes_up
        self.spent["joules"] += row.joules
        self.exceeded = self._condition.exceeded(self.spent)
        self.met = self.exceeded is None and self._condition.reached(row)
        if self.met or self.exceeded is not None:
            raise _DecidedError


@dataclass(frozen=True)
class Seed:
    """What the methods of one seed share: the fleet and shards, and the clients' links."""

    world: SharedWorld
    links: ClientLinks


class MethodReplay:
    """One method of a finished run, on all seeds.

    Args:
        run: the finished run.
        label: the method.
        recordings: its recorded training by seed.
        seeds: the world of each seed.
        steps: the steps of the run by (alpha, batch size, level).
        condition: the condition.
    """

    def __init__(
        self,
        run: FinishedRun,
        label: str,
        *,
        recordings: Mapping[int, Recording],
        seeds: Mapping[int, Seed],
        steps: Mapping[StepKey, StepCost],
        condition: Condition,
    ) -> None:
        self._run, self._label, self._condition = run, label, condition
        self._recordings, self._seeds, self._steps = recordings, seeds, steps
        self.why: dict[tuple[Name, float], tuple[Why, str]] = {}

    def spent(self, seed: int) -> Mapping[Kind, float] | None:
        """What the run itself spent until the value was reached; ``None`` if it was not reached."""
        watching = _Watching(replace(self._condition, limits={}))
        with suppress(_DecidedError, TrainsDifferentlyError):  # the second: after the last trained round
            simulate_run(self.setup(seed, watching))
        return watching.spent if watching.met else None

    def meets(self, seed: int, name: Name, factor: float) -> bool:
        """Whether a seed meets the condition if this part of the world is scaled by this factor.

        If it does not, ``why`` has the reason, and a sentence if the training would be different.
        """
        watching = _Watching(self._condition)
        different = "the run would end earlier"
        setup = self._scaled(seed, name, factor, watching)
        try:
            with suppress(_DecidedError):
                outcome = simulate_run(setup)
                if outcome.fault is not None:
                    raise outcome.fault
        except TrainsDifferentlyError as error:
            different = f"{error.field}: {error.what}"
        if not watching.met:
            refused = self._refused(setup) if name == "model" else ""
            if watching.exceeded is not None:
                self.why[name, factor] = watching.exceeded, ""
            elif refused and refused != self._refused(self.setup(seed)):
                self.why[name, factor] = "memory", refused
            else:
                self.why[name, factor] = "training", different
        return watching.met

    def _refused(self, setup: Setup) -> str:
        """The devices that have too little memory for the largest step, or empty."""
        peak = max(setup.cost(*key).peak_memory_bytes for key in self._steps)
        return ", ".join(dict.fromkeys(each.name for each in setup.fleet.profiles if not fits(each, peak)))

    def setup(self, seed: int, listener: Listener | None = None, *, bandwidth: float = 1.0) -> Setup:
        """The setup of one seed, with a factor on the capacity of every link."""
        each = self._seeds[seed]
        return retimed_setup(
            self._run,
            self._label,
            self._recordings[seed],
            world=each.world,
            links=each.links,
            listener=listener or Listener(),
            bandwidth=bandwidth,
        )

    def _scaled(self, seed: int, name: Name, factor: float, listener: Listener) -> Setup:
        if name == "bandwidth":
            return self.setup(seed, listener, bandwidth=factor)
        setup = self.setup(seed, listener)
        if name == "devices":
            return with_slower_devices(setup, factor)
        if name == "battery":
            return with_batteries(setup, factor)
        return with_larger_model(setup, factor, self._steps, self._run.costs[self._label].step)
