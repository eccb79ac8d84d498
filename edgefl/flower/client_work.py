"""What a ``ClientApp`` does with a message: its reply, and the work that this is on the client's device."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import dataloader

from edgefl.cost.measure import StepCost
from edgefl.errors import UserError
from edgefl.flower.app import App
from edgefl.flower.baton import watched
from edgefl.flower.counting import OperatorCount
from edgefl.flower.messages import copied, copied_message, error_reply, node_id_of
from edgefl.flower.randomness import seeded
from edgefl.flower.replies import Answer, Replies
from edgefl.flower.scenario import DeclaredSeconds
from edgefl.flower.virtual_time import AppTime, replaced
from edgefl.flower.works import Works
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
        raised: whether it ended with an error.
    """

    reply: Any
    work: Work
    context: Any
    raised: bool


class Clients:
    """The nodes of an app: each one has its context, in which the app keeps its state.

    Args:
        app: the app.
        run_id: the app's run.
        seed: the run's seed.
        number: how many nodes there are.
        declared: the declared seconds of work.
        clock: counts the seconds that it sleeps.
        works: knows what work takes on each device.
        replies: records replies, and returns recorded ones.
    """

    def __init__(
        self,
        app: App,
        *,
        run_id: int,
        seed: int,
        number: int,
        declared: DeclaredSeconds,
        clock: AppTime,
        works: Works,
        replies: Replies,
    ) -> None:
        from flwr.app import Context, RecordDict

        self._app, self._seed, self._declared, self._clock = app, seed, declared, clock
        self._works, self._replies = works, replies
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
        work = self._works.of(client, answer.cost, answer.steps, answer.waits)
        return Done(answer.reply, work, answer.context, raised=answer.reply.has_error())

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
                reason, failed = f"{type(error)}:<'{_text(error)}'>", True
                reply = error_reply(message, "CLIENT_APP_RAISED_EXCEPTION", reason)
                warnings.warn(f"client {client}: the ClientApp raised {self._app.error_in_words(error)}", stacklevel=2)
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


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (the app's own class of errors)
        return ""


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
