"""The end of a round: the next model, its metric, its cost, and whether the run continues."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from edgefl.methods.payload import Downlink
from edgefl.methods.payloads.blocks import bytes_of_last_blocks
from edgefl.record.events import ABSENT, detail
from edgefl.record.rounds import RoundRow
from edgefl.scheduling.blocks.base import BlockFeedback
from edgefl.scheduling.selection.base import SelectionFeedback
from edgefl.simulation.decisions import Pick
from edgefl.simulation.ledger import Ledger
from edgefl.simulation.limits import Standing
from edgefl.simulation.world import World
from edgefl.training.faults import Diverged, blaming
from edgefl.training.job import Evaluation, Mixing, TrainingJob

EMA_DECAY = 0.9
"""FedMLB reports ema_t = 0.9 ema_{t-1} + 0.1 a_t of the accuracy a_t; here it is of the task's metric."""

STALL_ROUNDS = 10
"""The number of successive rounds without any update after which a run stalls."""

UNKNOWN = Evaluation(math.nan, math.nan)
"""Of a model that was not evaluated."""


class Life(Protocol):
    """What the end of a round reads of a :class:`~edgefl.simulation.participation.Participation`."""

    @property
    def client(self) -> int:
        """Its number."""

    @property
    def round(self) -> int:
        """The model version that it began from."""

    @property
    def phase(self) -> str:
        """Where it is; ``refused`` if its device has too little memory."""

    @property
    def job(self) -> TrainingJob:
        """Its training job."""

    @property
    def downlink(self) -> Downlink:
        """What it was sent."""

    @property
    def compute_seconds(self) -> float:
        """Its seconds of computing."""

    @property
    def exposed_seconds(self) -> float:
        """Its transfer seconds within the round."""

    @property
    def arrived_at(self) -> float:
        """When its update was complete."""

    @property
    def reached_at(self) -> float:
        """When its update was complete at the server."""

    def played(self, blocks: int) -> int:
        """The number of blocks that a scheduler chose."""

    def transfers_since(self, moment: float) -> tuple[float, float]:
        """Its transfer seconds after and before a given time."""


class RoundBook:
    """Ends the rounds of a run: aggregates, evaluates, writes rows, and stops the run.

    Args:
        world: the run's world.

    Attributes:
        rows: one row for every round that ended.
        latest: the evaluation of the newest model, and its exponential moving average.
        pick: the call of the selector for the present round, if rounds are compared with the best possible ones.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.rows: list[RoundRow] = []
        self.latest = UNKNOWN
        self.ema = math.nan
        self.best = math.nan
        self.pick: Pick | None = None
        self._evaluated_round = -1
        self._before = Ledger()
        self._began = 0.0
        self._empty_rounds = 0

    @property
    def rounds_done(self) -> int:
        """Rounds that ended, which is also the newest model's version."""
        return len(self.rows)

    def close(
        self,
        round: int,
        lives: Sequence[Life],
        arrived: Sequence[Life],
        mixing: Mixing | None = None,
    ) -> None:
        """A round has closed.

        Args:
            round: from 0; also the model version that the updates are applied to.
            lives: the participations that began in the round.
            arrived: those whose updates are aggregated, ascending by client.
            mixing: the weight of each update; ``None``: full weight.
        """
        world, setup = self.world, self.world.setup
        try:
            with blaming(setup.label, round, "aggregation"):
                setup.learner.aggregate(round, [life.job.id for life in arrived], round, mixing)
        except Diverged as fault:
            # The other methods continue; this one keeps its last valid model.
            world.wrote("diverged", round, note=detail(reason=str(fault)))
            world.stop("diverged")
            return
        world.aggregated(round, [life.job for life in arrived], mixing)
        self.pass_feedback(round, arrived)
        due = (round + 1) % setup.evaluate_every == 0 or round + 1 == setup.rounds
        evaluation = self.evaluate(round + 1) if due else UNKNOWN
        self._account(round, lives, arrived, evaluation)
        self._standing(round, evaluation)
        self._empty_rounds = 0 if arrived else self._empty_rounds + 1
        if self._empty_rounds >= STALL_ROUNDS:
            world.stop("stalled")
        setup.log.flush()
        for listener in setup.listeners:
            listener.round_ended(self.rows[-1])

    def evaluate_last(self) -> Evaluation:
        """The newest model's evaluation, even if none was due in its round."""
        if self._evaluated_round != self.rounds_done:
            self.evaluate(self.rounds_done)
        return self.latest

    def evaluate(self, version: int) -> Evaluation:
        """Evaluate a model version, and log its metric."""
        with blaming(self.world.setup.label, version - 1, "evaluation"):
            self.latest = self.world.setup.learner.evaluate(version)
        self._evaluated_round = version
        value = self.latest.metric
        self.ema = value if math.isnan(self.ema) else EMA_DECAY * self.ema + (1 - EMA_DECAY) * value
        self.best = value if math.isnan(self.best) else self.world.setup.limits.metric.best(self.best, value)
        if self.world.setup.trains:
            facts: dict[str, object] = {"metric": value, "loss": self.latest.loss, "ema": self.ema}
            if not math.isnan(self.latest.ensemble):
                facts["ensemble"] = self.latest.ensemble
            if self.latest.model:
                facts["model"] = self.latest.model
            self.world.wrote("evaluation", version - 1, value=value, note=detail(**facts))
        return self.latest

    def pass_feedback(self, round: int, arrived: Sequence[Life]) -> None:
        """Pass the numbers of the aggregated jobs to the log, the selector and the block scheduler."""
        setup, scheduler = self.world.setup, self.world.setup.scheduler
        selector = setup.selector if setup.selector.learns() else None
        if not arrived or not (setup.trains or scheduler or selector):
            return
        feedback = [setup.learner.feedback(life.job.id) for life in arrived]
        if setup.trains:
            for life, numbers in zip(arrived, feedback, strict=True):
                note = detail(**numbers._asdict())
                self.world.wrote("feedback", round, life.client, life.job.id.dispatch, value=numbers.loss, note=note)
        if selector is not None:
            clients = np.array([life.client for life in arrived], np.int64)
            selection_feedback = SelectionFeedback(
                client=clients,
                loss=np.array([numbers.loss for numbers in feedback], np.float64),
                samples=setup.samples[clients],
                seconds=np.array([life.compute_seconds + life.exposed_seconds for life in arrived], np.float64),
            )
            with blaming(setup.label, round, "selection"):
                selector.observe(selection_feedback)
        if scheduler is not None:
            block_feedback = BlockFeedback(
                client=np.array([life.client for life in arrived], np.int64),
                alpha=np.array([life.played(setup.sizes.blocks) for life in arrived], np.int64),
                distance=np.array([numbers.distance for numbers in feedback], np.float64),
                loss=np.array([numbers.loss for numbers in feedback], np.float64),
                compute_seconds=np.array([life.compute_seconds for life in arrived], np.float64),
                transfer_seconds=np.array([life.exposed_seconds for life in arrived], np.float64),
            )
            with blaming(setup.label, round, "block scheduler"):
                scheduler.observe(block_feedback)

    def _account(self, round: int, lives: Sequence[Life], arrived: Sequence[Life], evaluation: Evaluation) -> None:
        world = self.world
        # The critical path is that of the client whose arrival closed the round; there is none if the deadline closed
        # the round.
        closing = [life for life in arrived if life.reached_at == world.now]
        critical = max(closing, key=lambda life: (life.arrived_at, life.client), default=None)
        if critical is not None:
            exposed, hidden = critical.transfers_since(self._began)
            world.ledger.exposed_seconds += exposed
            world.ledger.hidden_seconds += hidden
        total = world.ledger.copy()
        spent = total.since(self._before)
        sent = Counter((life.job.level, life.downlink.alpha) for life in lives if life.phase != "refused")
        bytes = {key: bytes_of_last_blocks(world.setup.sizes_of(key[0]), key[1]) for key in sent}
        ema = self.ema if evaluation is not UNKNOWN else math.nan
        is_accuracy = world.setup.limits.metric.is_accuracy
        row = RoundRow(
            round=round + 1,
            seconds=world.now,
            metric=evaluation.metric,
            metric_ema=ema,
            metric_ensemble=evaluation.ensemble,
            accuracy=evaluation.metric if is_accuracy else math.nan,
            accuracy_ema=ema if is_accuracy else math.nan,
            accuracy_ensemble=evaluation.ensemble if is_accuracy else math.nan,
            loss=evaluation.loss,
            bytes_down=int(spent.bytes_down),
            bytes_up=int(spent.bytes_up),
            flops=spent.flops,
            joules=spent.joules,
            participants=sent.total(),
            aggregated=len(arrived),
            refused=len(lives) - sent.total(),
            exposed_seconds=spent.exposed_seconds,
            hidden_seconds=spent.hidden_seconds,
            critical_client=ABSENT if critical is None else critical.client,
            blocks_actual=sum(times * bytes[key].actual for key, times in sent.items()),
            blocks_uniform=sum(times * bytes[key].uniform for key, times in sent.items()),
            staleness=sum(round - life.round for life in arrived) / len(arrived) if arrived else 0.0,
            ratio_to_optimum=self._ratio_to_optimum(round, arrived),
        )
        world.wrote(
            "round_end",
            round,
            row.critical_client,
            ABSENT if critical is None else critical.job.id.dispatch,
            value=world.now - self._began,
            note=detail(exposed_seconds=row.exposed_seconds, hidden_seconds=row.hidden_seconds),
        )
        self._before, self._began = total, world.now
        self.rows.append(row)

    def _ratio_to_optimum(self, round: int, arrived: Sequence[Life]) -> float:
        """The seconds since the selection, relative to the least ones for as many updates; NaN if not comparable."""
        optimum, pick = self.world.setup.optimum, self.pick
        if optimum is None or pick is None or not arrived:
            return math.nan
        if any(sum(part.bytes for part in life.downlink.parts) < optimum.bytes_down for life in arrived):
            return math.nan
        least = optimum.least_seconds(round, pick.available, len(arrived))
        return (self.world.now - pick.seconds) / least if 0 < least < math.inf else math.nan

    def _standing(self, round: int, evaluation: Evaluation) -> None:
        world, limits = self.world, self.world.setup.limits
        standing = Standing(round + 1, world.now, self._before, evaluation.metric, self.ema)
        for target in limits.round_ended(standing):
            world.wrote("target", round, item=limits.metric.name, value=target.value)
        if world.setup.stop == "target" and limits.all_reached:
            world.stop("target")
