"""What a ``ClientApp`` does with a message: its reply, and the work that this is on the client's device."""

from __future__ import annotations

import copy
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import dataloader

from edgefl.cost.measure import StepCost
from edgefl.errors import UserError, in_words
from edgefl.fleet import FleetAssignment, compute_joules, fits, step_seconds
from edgefl.flower.app import App
from edgefl.flower.baton import watched
from edgefl.flower.counting import OperatorCount
from edgefl.flower.messages import copied, copied_message, error_reply, node_id_of
from edgefl.flower.randomness import seeded
from edgefl.flower.replies import Answer, Replies
from edgefl.flower.scenario import DeclaredSeconds
from edgefl.flower.virtual_time import AppTime, replaced
from edgefl.record.events import ABSENT
from edgefl.simulation.work import Work

NOTHING = StepCost(0, (), 0, 0, 0.0, 0.0, 0)
"""The cost of work whose seconds are declared."""


@dataclass(frozen=True)
class Done:
    """The result of a ``ClientApp``.

    Attributes:
        reply: its reply, or the error that it ended with.
        work: what it took.
        context: the node's context after it.
    """

    reply: Any
    work: Work
    context: Any


class Costs:
    """The costs of all distinct work of a run, numbered in the order of their first occurrence.

    Args:
        before: the number of pieces of work of the method's earlier runs, which have the numbers from 1.
    """

    def __init__(self, before: int = 0) -> None:
        self._before = before
        self._numbers: dict[tuple[object, ...], int] = {}
        self.used: list[StepCost] = []

    def number(self, cost: StepCost, steps: int, waits: float) -> int:
        """The number of this work, with its optimizer steps and the seconds that no operator takes."""
        key = (cost.operators, cost.peak_memory_bytes, steps, waits)
        if key not in self._numbers:
            self._numbers[key] = self._before + len(self.used) + 1
            self.used.append(replace(cost, batch=self._numbers[key]))
        return self._numbers[key]


class Clients:
    """The nodes of an app: each one has its context, in which the app keeps its state.

    Args:
        app: the app.
        run_id: the app's run.
        seed: the run's seed.
        fleet: the device of each client.
        declared: the declared seconds of work.
        clock: counts the seconds that it sleeps.
        costs: collects the costs of all work.
        replies: records replies, and returns recorded ones.
        on_new: called once for each distinct work of a kind of device, with its seconds besides the roofline's.
    """

    def __init__(
        self,
        app: App,
        *,
        run_id: int,
        seed: int,
        fleet: FleetAssignment,
        declared: DeclaredSeconds,
        clock: AppTime,
        costs: Costs,
        replies: Replies,
        on_new: Callable[[Work, float], None],
    ) -> None:
        from flwr.app import Context, RecordDict

        number = len(fleet.group)
        self._app, self._seed, self._fleet, self._declared, self._clock = app, seed, fleet, declared, clock
        self._costs, self._replies, self._on_new = costs, replies, on_new
        self._known: dict[tuple[int, int], Work] = {}
        self._contexts = [
            Context(
                run_id=run_id,
                node_id=node_id_of(client),
                node_config={"partition-id": client, "num-partitions": number},
                state=RecordDict(),
                run_config=dict(app.run_config),
            )
            for client in range(number)
        ]

    def execute(self, client: int, message: Any, dispatch: int, digest: str) -> Done:
        """Call the ``ClientApp`` with a message, which it may change, or return its recorded answer.

        Args:
            client: the client.
            message: the message.
            dispatch: the number of the client's earlier messages.
            digest: the digest of the message.

        Raises:
            UserError: it trained without executing any operator of PyTorch, and no seconds are declared.
        """
        answer = self._replies.recorded(client, dispatch, digest)
        if answer is None:
            answer = self._call(client, message, dispatch)
            self._replies.record(client, dispatch, digest, answer)
        return Done(answer.reply, self._work(client, answer.cost, answer.steps, answer.waits), answer.context)

    def _call(self, client: int, message: Any, dispatch: int) -> Answer:
        kind = message.metadata.message_type
        context = copy.copy(self._contexts[client])
        context.state, context.run_config = copied(context.state), dict(context.run_config)
        declared = self._declared.of(kind)
        counted, steps, failed = OperatorCount(), Counter[str](), False
        with (
            self._clock.in_client() as slept,
            seeded(self._seed, "flower", client, dispatch),
            _optimizer_steps(steps),
            loader_workers_reported(),
            watched(f"client {client} in its ClientApp", lambda sentence: warnings.warn(sentence, stacklevel=2)),
        ):
            try:
                with counted if declared is None else nullcontext():
                    reply = self._app.client(message, context)
                if not isinstance(reply, type(message)):
                    raise TypeError(f"expected a Message from the ClientApp, found {type(reply).__name__}")  # noqa: TRY301
                if reply.metadata.reply_to_message_id != message.metadata.message_id:
                    raise ValueError("expected a reply to the message from the ClientApp, found another message")  # noqa: TRY301
                if reply.has_content():
                    reply = copied_message(reply)  # the app may keep records of its reply in the node's state
            except (Exception, SystemExit) as error:  # noqa: BLE001  (Flower's nodes return every error of an app)
                reply, failed = error_reply(message, "CLIENT_APP_RAISED_EXCEPTION", f"{type(error)}:<'{error}'>"), True
                warnings.warn(f"client {client}: the ClientApp raised {in_words(error)}", stacklevel=2)
        reply.metadata.__dict__["_message_id"] = f"reply to {message.metadata.message_id}"
        cost = counted.cost() if declared is None else NOTHING
        waits = slept[0] + (declared or 0.0)
        if kind.startswith("train") and declared is None and not (cost.operators or waits or failed):
            raise UserError(
                f"client {client} trained without any operator of PyTorch in its own thread, so its seconds cannot be "
                "counted; declare them: flower.seconds",
                field="flower.seconds",
            )
        return Answer(reply, context, cost, steps["steps"] if declared is None else 0, waits)

    def keep(self, client: int, context: Any) -> None:
        """The client's work is complete: its state is that of this context."""
        self._contexts[client] = context

    def _work(self, client: int, cost: StepCost, steps: int, waits: float) -> Work:
        group, number = int(self._fleet.group[client]), self._costs.number(cost, steps, waits)
        work = self._known.get((group, number))
        if work is None:
            profile = self._fleet.profiles[group]
            # The roofline of all operators together contains the overhead of one step.
            other = waits + (steps - 1) * profile.rates()[3]
            work = self._known[group, number] = self._measured(group, number, cost, steps, other)
            self._on_new(work, other)
        return work

    def _measured(self, group: int, number: int, cost: StepCost, steps: int, other: float) -> Work:
        profile = self._fleet.profiles[group]
        seconds = max(0.0, step_seconds(profile, cost.operators) + other)
        hot = max(0.0, step_seconds(profile, cost.operators, hot=True) + other)
        thermal = profile.compute.thermal
        return Work(
            device=profile.name,
            group=group,
            alpha=1,
            samples=ABSENT,
            steps=steps,
            batches={number: 1},
            seconds=seconds,
            flops=cost.training_flops,
            joules=compute_joules(profile, seconds),
            peak_memory_bytes=cost.peak_memory_bytes,
            fits=fits(profile, cost.peak_memory_bytes),
            watts=compute_joules(profile, 1.0),
            hot_seconds=hot,
            cool_for=math.inf if thermal is None else thermal.after,
            number=number,
        )


@contextmanager
def _optimizer_steps(counts: Counter[str]) -> Iterator[None]:
    """Count the steps of PyTorch's optimizers within the block."""
    handle = register_optimizer_step_post_hook(lambda *_: counts.update(["steps"]))
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def loader_workers_reported() -> Iterator[None]:
    """Warn of data loaders with worker processes, whose operators are not counted."""
    original = dataloader._MultiProcessingDataLoaderIter

    def made(loader: Any) -> Any:
        warnings.warn(
            "the app's DataLoader has worker processes; what they execute takes no virtual seconds", stacklevel=2
        )
        return original(loader)

    with replaced(dataloader, "_MultiProcessingDataLoaderIter", made):
        yield
