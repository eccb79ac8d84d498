"""Simulate a finished run of an app again, here or in another world, with the calls and the answers of its log.

Nothing of the app is executed, and Flower is not needed. The calls are made again in the same order by each thread, so
the result is that of the app if it would make the same calls there. It is sure not to if it gets other replies, which
are refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgefl.cost.measure import StepCost
from edgefl.errors import UserError
from edgefl.flower.baton import Baton
from edgefl.flower.calls import AppThread, Calls
from edgefl.flower.client_work import Done
from edgefl.flower.course import AppBook, AppCourse
from edgefl.flower.exchange import Exchange
from edgefl.flower.messages import Letter, Outcome, Sent
from edgefl.flower.metrics import Metrics
from edgefl.flower.scenario import AppScenario
from edgefl.flower.setup import app_setup
from edgefl.flower.trace import Call, Trace, parts_of
from edgefl.flower.works import Costs, Works
from edgefl.methods.payload import Part
from edgefl.record.listener import Listener
from edgefl.simulation.rounds import RoundBook
from edgefl.simulation.run import Outcome as RunOutcome
from edgefl.simulation.run import simulate_run
from edgefl.simulation.setup import Course
from edgefl.simulation.world import World
from edgefl.training.job import Evaluation


class DiffersError(UserError):
    """Elsewhere the app would get something else than in its finished run.

    Args:
        what: the difference.
        field: where it is.
    """

    def __init__(self, what: str, *, field: str | None = None) -> None:
        self.what = what
        message = f"{what}; so the app could decide differently, and the run cannot be replayed: simulate it instead"
        super().__init__(message, field=field)


def replay_app(
    scenario: AppScenario,
    label: str,
    seed: int,
    *,
    trace: Trace,
    known: Mapping[int, StepCost],
    costs: Costs,
    listeners: Sequence[Listener],
) -> RunOutcome:
    """Simulate a run again.

    Args:
        scenario: the world.
        label: the method.
        seed: the run's seed.
        trace: the calls and answers of the run.
        known: the costs of its work, by number.
        costs: collects the costs of the replay.
        listeners: follow the replay.

    Raises:
        DiffersError: the app would get other replies than in its run.
    """
    metrics, batons = _Evaluations(trace.evaluations), []

    def course(world: World) -> tuple[RoundBook, Course]:
        baton = Baton(world.env, lambda sentence: warnings.warn(sentence, stacklevel=2))
        batons.append(baton)
        book = AppBook(world, metrics)
        post = _RecordedPost(trace, known, Works(world.setup.fleet, costs, world.new_work))
        running = AppCourse(
            world,
            book,
            baton=baton,
            post=post,
            metrics=metrics,
            main=lambda: calls.start("ServerApp", server.thread(0)),
        )
        calls = Calls(world, baton, running)
        server = _RecordedServer(trace, calls)
        return book, running

    try:
        return simulate_run(app_setup(scenario, label, seed, metrics=metrics, listeners=listeners, course=course))
    finally:
        for baton in batons:
            baton.stop()


class _Evaluations(Metrics):
    """The evaluations of the finished run."""

    def __init__(self, known: Mapping[int, Evaluation]) -> None:
        super().__init__(None)
        self._known = known

    def evaluation(self, version: int) -> Evaluation | None:
        return self._known.get(version)


class _RecordedPost:
    """Answers as the clients did; a reply is its outcome."""

    def __init__(self, trace: Trace, known: Mapping[int, StepCost], works: Works) -> None:
        self._trace, self._known, self._works = trace, known, works

    def execute(self, client: int, message: Any, dispatch: int, digest: str) -> Done:
        answer = self._trace.answers.get((client, dispatch))
        if answer is None:
            raise DiffersError(f"client {client} did not execute its message {dispatch + 1} in the finished run")
        if answer.work not in self._known:
            raise UserError(f"costs.json has no work {answer.work}")
        steps, waits = self._trace.works[answer.work]
        work = self._works.of(client, self._known[answer.work], steps, waits)
        if work.fits == answer.refused:
            but = "fits here, but not" if work.fits else "does not fit here, but did"
            raise DiffersError(f"message {dispatch + 1} of client {client} {but} into its memory in the finished run")
        return Done("raised" if answer.raised else "reply", work, None, raised=answer.raised)

    def keep(self, client: int, context: Any) -> None:
        """The states of clients are not recorded."""

    def error(self, message: Any, outcome: Outcome, reason: str = "") -> str:
        return outcome

    def parts(self, client: int, dispatch: int, reply: Any) -> tuple[Part, ...]:
        parts = self._trace.parts.get((client, dispatch))
        if parts is None:
            raise DiffersError(f"client {client} did not reply to its message {dispatch + 1} in the finished run")
        return parts


class _RecordedServer:
    """Makes the calls of a ``ServerApp`` again, with each of its threads."""

    def __init__(self, trace: Trace, calls: Calls) -> None:
        self._trace, self._calls = trace, calls
        self._exchanges: dict[tuple[int, int], Exchange] = {}
        self._threads: dict[int, AppThread] = {}
        self._reordered = False

    def thread(self, number: int) -> Callable[[], None]:
        """What a thread does."""

        def act() -> None:
            for call in self._trace.calls.get(number, ()):
                if call.what == "end":
                    return
                self._make(call)
            raise DiffersError(f"the finished run ended by '{self._trace.reason}' before the app did what is next")

        return act

    def _make(self, call: Call) -> None:
        calls, facts = self._calls, call.facts
        match call.what:
            case "round":
                calls.begin_round()
            case "selection":
                letters = [
                    Letter(client, None, Sent(parts_of(parts), ""), left) for client, parts, left in facts["messages"]
                ]
                for each in calls.push(letters):
                    self._exchanges[each.client, each.job.id.dispatch] = each
            case "wait":
                calls.wait(self._named(facts["messages"]), until=facts["until"], timeout=facts.get("timeout"))
            case "pull":
                self._pull(call)
            case "sleep":
                calls.let_pass(facts["seconds"])
            case "nodes":
                there = calls.nodes()
                absent = [client for client, present in enumerate(there) if not present]
                if absent != facts.get("absent", []):
                    self._differs(call, "the absent clients", absent, facts.get("absent", []))
            case "start":
                number = facts["starts"]
                self._threads[number] = calls.start(f"call {number}", self.thread(number))
            case "join":
                calls.join([self._threads[number] for number in facts["threads"]])

    def _pull(self, call: Call) -> None:
        known = [tuple(each) for each in call.facts["got"]]
        exchanges = self._named(call.facts["messages"])
        found = self._calls.pull(exchanges, gives_up=call.facts["gives_up"])
        got = [(each.client, each.job.id.dispatch, str(each.outcome)) for each in found]
        if sorted(got) != sorted(known):
            self._differs(call, "the app gets", _in_words(got), _in_words(known))
        if got != known and not self._reordered:
            self._reordered = True
            warnings.warn(
                "replies that the app gets at once arrive in another order than in the finished run; its results are "
                "those of the finished order, and sums may round differently",
                stacklevel=2,
            )

    def _named(self, names: Sequence[Sequence[int]]) -> list[Exchange]:
        return [self._exchanges[client, dispatch] for client, dispatch in names]

    def _differs(self, call: Call, what: str, here: object, known: object) -> None:
        raise DiffersError(f"round {call.round}: {what} {here or 'none'} here, and {known or 'none'} in the run")


def _in_words(got: Sequence[tuple[int, int, str]]) -> str:
    kinds: dict[str, list[str]] = {}
    for client, _, outcome in sorted(got):
        kinds.setdefault("replies" if outcome == "reply" else f"errors ({outcome})", []).append(str(client))
    return " and ".join(f"{kind} of clients {', '.join(clients)}" for kind, clients in kinds.items()) or "no reply"
