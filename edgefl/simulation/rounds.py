"""The end of a round: the next model, its metric, its cost, and whether the run continues."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgefl.record.events import ABSENT, detail
from edgefl.record.figures import Totals
from edgefl.record.rounds import AMOUNTS, OF_PEERS, RoundRow
from edgefl.scheduling.blocks.base import BlockFeedback
from edgefl.scheduling.selection.base import SelectionFeedback
from edgefl.simulation.decisions import Pick
from edgefl.simulation.participation import Participation
from edgefl.simulation.world import World
from edgefl.training.faults import Diverged, NotTrained, blaming
from edgefl.training.job import Evaluation, Mixing, PeerMixing
from edgefl.units import at_most

Participants = Sequence[Participation]

EMA_DECAY = 0.9
"""FedMLB reports ema_t = 0.9 ema_{t-1} + 0.1 a_t of the accuracy a_t; here it is of the task's metric."""

STALL_ROUNDS = 10
"""The number of successive rounds without any update after which a run stalls."""

_OF_PEERS = [each.name.removeprefix("peers_") for each in OF_PEERS]

UNKNOWN = Evaluation(math.nan, math.nan)
"""Of a model that was not evaluated."""


class RoundOptimum(Protocol):
    """The best rounds of a server that knows all costs before, with cohorts that exchange the whole model."""

    @property
    def bytes_down(self) -> int:
        """The bytes that each client is assumed to download."""

    def least_seconds(self, round: int, available: NDArray[np.int64], updates: int) -> float:
        """Seconds in which no cohort of these clients returns so many updates in this round (from 0), at any rates."""


class RoundBook:
    """Ends the rounds of a run: aggregates, evaluates, writes rows, stops; ``pick``: the round's, for an optimum."""

    def __init__(self, world: World, optimum: RoundOptimum | None = None) -> None:
        self.world, self._optimum = world, optimum
        self.rows: list[RoundRow] = []
        self.latest = UNKNOWN
        self.ema = self.best = math.nan
        self.pick: Pick | None = None
        selector = world.setup.selector
        self._learning_selector = selector if selector.learns() else None
        own = OF_PEERS if world.setup.protocol.own_models else []
        self._amounts = [*AMOUNTS, *own, *world.setup.figures]
        self._evaluated_round = -1
        self._before = Totals()
        self._began = self._closed = 0.0
        self._empty_rounds = 0
        self._look_ahead()

    @property
    def rounds_done(self) -> int:
        """Rounds that ended, which is also the newest model's version."""
        return len(self.rows)

    def close(
        self,
        round: int,
        participants: Participants,
        arrived: Participants,
        mixing: Mixing | PeerMixing | None = None,
        closed: float | None = None,
    ) -> None:
        """A round ends; its number, from 0, is also the model version that the updates are applied to.

        The updates of ``arrived``, ascending by client, among ``participants`` are aggregated with ``mixing`` (None:
        full weight); the last arrived at ``closed`` (None: now).
        """
        world, setup = self.world, self.world.setup
        self._closed = world.env.now if closed is None else closed
        try:
            with blaming(setup.label, round, "aggregation"):
                setup.learner.aggregate(round, [each.job.id for each in arrived], round, mixing)
        except Diverged as fault:
            # The other methods continue; this one keeps its last valid model.
            world.wrote("diverged", round, detail=detail(reason=str(fault)))
            world.accounts.stop("diverged")
            return
        world.aggregated(round, [each.job for each in arrived], mixing)
        self.pass_feedback(round, arrived)
        evaluation = self.evaluate(round + 1) if setup.evaluates(round) else UNKNOWN
        self._account(round, participants, arrived, evaluation)
        limits = setup.limits
        for target in limits.round_ended(self._before, evaluation.metric, self.ema):
            world.wrote("target", round, item=limits.metric.name, value=target.value)
        if setup.stop == "target" and limits.all_reached:
            world.accounts.stop("target")
        self._look_ahead()
        self._empty_rounds = 0 if arrived else self._empty_rounds + 1
        if self._empty_rounds >= STALL_ROUNDS:
            world.accounts.stop("stalled")
        setup.log.flush()
        for listener in setup.listeners:
            listener.round_ended(self.rows[-1])

    def evaluate_last(self) -> Evaluation:
        """The newest model's evaluation, even if none was due in its round; unknown if a replay does not have it."""
        if self._evaluated_round != self.rounds_done:
            try:
                self.evaluate(self.rounds_done)
            except NotTrained:
                self.latest = UNKNOWN
        return self.latest

    def evaluate(self, version: int) -> Evaluation:
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
            if self.world.setup.protocol.own_models:
                facts |= {name: getattr(self.latest, name) for name in _OF_PEERS}
            if self.latest.model:
                facts["model"] = self.latest.model
            self.world.wrote("evaluation", version - 1, value=value, detail=detail(**facts))
        return self.latest

    def pass_feedback(self, round: int, arrived: Participants) -> None:
        """Pass the numbers of the aggregated jobs to the log, the selector and the block scheduler."""
        setup, scheduler = self.world.setup, self.world.setup.scheduler
        selector = self._learning_selector
        if not arrived or not (setup.trains or scheduler or selector):
            return
        feedback = [setup.learner.feedback(each.job.id) for each in arrived]
        self.world.accounts.totals.raise_to("start_distance", max(each.drift for each in feedback))
        if setup.trains:
            for participant, numbers in zip(arrived, feedback, strict=True):
                note = detail(**numbers._asdict())
                self.world.wrote(
                    "feedback", round, participant.client, participant.job.id.dispatch, value=numbers.loss, detail=note
                )
        if selector is not None:
            clients = np.array([each.client for each in arrived], np.int64)
            selection_feedback = SelectionFeedback(
                client=clients,
                loss=np.array([numbers.loss for numbers in feedback], np.float64),
                samples=setup.samples[clients],
                seconds=np.array([each.compute_seconds + each.exposed_seconds for each in arrived], np.float64),
            )
            with blaming(setup.label, round, "selection"):
                selector.observe(selection_feedback)
        if scheduler is not None:
            block_feedback = BlockFeedback(
                client=np.array([each.client for each in arrived], np.int64),
                alpha=np.array([each.played(setup.sizes.blocks) for each in arrived], np.int64),
                distance=np.array([numbers.distance for numbers in feedback], np.float64),
                loss=np.array([numbers.loss for numbers in feedback], np.float64),
                compute_seconds=np.array([each.compute_seconds for each in arrived], np.float64),
                transfer_seconds=np.array([each.exposed_seconds for each in arrived], np.float64),
            )
            with blaming(setup.label, round, "block scheduler"):
                scheduler.observe(block_feedback)

    def _account(self, round: int, participants: Participants, arrived: Participants, evaluation: Evaluation) -> None:
        world = self.world
        # The critical path is that of the client whose arrival closed the round; there is none if the deadline closed
        # the round.
        closing = [each for each in arrived if at_most(self._closed, each.reached_at)]
        last = max((each.arrived_at for each in closing), default=math.nan)
        closing = [each for each in closing if at_most(last, each.arrived_at)]
        critical = max(closing, key=lambda each: each.client, default=None)
        totals = world.accounts.totals
        served = [each for each in participants if each.entered and not each.refused]
        sent = Counter((each.job.level, each.downlink.alpha) for each in served)
        for (level, alpha), times in sent.items():
            sizes = world.setup.sizes_of(level)
            totals.charge("blocks_actual", times * sizes.last(alpha).model_bytes)
            totals.charge("blocks_uniform", times * sizes.uniform().last(alpha).model_bytes)
        exposed, hidden = (0.0, 0.0) if critical is None else critical.transfers_since(self._began)
        totals.charge("exposed_seconds", exposed)
        totals.charge("hidden_seconds", hidden)
        totals.charge("participants", len(served))
        totals.charge("aggregated", len(arrived))
        totals.charge("rounds_without_update", not arrived)
        totals.charge("refused", sum(each.refused for each in participants))
        totals |= {"rounds": round + 1, "seconds": world.env.now}
        if world.setup.protocol.own_models:
            totals |= {f"peers_{name}": getattr(evaluation, name) for name in _OF_PEERS}
        if (ledger := world.setup.ledger) is not None and ledger.accounts:
            available = None if self.pick is None else len(self.pick.available)
            totals["epsilon"] = ledger.round_closed(available, [(each.client, each.job.steps) for each in served])
        totals["ratio_to_optimum"] = self._ratio_to_optimum(round, arrived)
        ema = self.ema if evaluation is not UNKNOWN else math.nan
        is_accuracy = world.setup.limits.metric.is_accuracy
        row = RoundRow(
            round=round + 1,
            seconds=world.env.now,
            metric=evaluation.metric,
            metric_ema=ema,
            metric_ensemble=evaluation.ensemble,
            accuracy=evaluation.metric if is_accuracy else math.nan,
            accuracy_ema=ema if is_accuracy else math.nan,
            accuracy_ensemble=evaluation.ensemble if is_accuracy else math.nan,
            loss=evaluation.loss,
            critical_client=ABSENT if critical is None else critical.client,
            staleness=sum(round - each.round for each in arrived) / len(arrived) if arrived else 0.0,
            amounts=totals.since(self._before, self._amounts),
        )
        ends = {name: row.amounts[name] for name in ("server_seconds", "evaluation_seconds") if row.amounts[name]}
        world.wrote(
            "round_end",
            round,
            row.critical_client,
            ABSENT if critical is None else critical.job.id.dispatch,
            value=world.env.now - self._began,
            detail=detail(exposed_seconds=row.exposed_seconds, hidden_seconds=row.hidden_seconds, **ends),
        )
        self._before, self._began = Totals(totals), world.env.now
        self.rows.append(row)

    def _look_ahead(self) -> None:
        """End the run before a round that would exceed a budget of privacy, which cannot be given back."""
        ledger, accounts = self.world.setup.ledger, self.world.accounts
        for budget in self.world.setup.limits.budgets:
            left = budget.kind == "epsilon" and not budget.exhausted
            if left and ledger is not None and ledger.ahead() > budget.limit:
                accounts.exhaust(budget)

    def _ratio_to_optimum(self, round: int, arrived: Participants) -> float:
        """The seconds since the selection, relative to the least ones for as many updates; NaN if not comparable."""
        optimum, pick = self._optimum, self.pick
        if optimum is None or pick is None or not arrived:
            return math.nan
        if any(sum(part.bytes for part in each.downlink.parts) < optimum.bytes_down for each in arrived):
            return math.nan
        least = optimum.least_seconds(round, pick.available, len(arrived))
        return (self._closed - pick.seconds) / least if 0 < least < math.inf else math.nan
