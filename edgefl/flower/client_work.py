"""What a ``ClientApp`` does with a message: its reply, and its work, from PyTorch's operators, steps and waits."""

import copy
import json
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import dataloader

from edgefl.cost.formulas import note_uncounted
from edgefl.cost.measure import Operator, StepCost
from edgefl.cost.recorder import Record, Recorder
from edgefl.errors import EdgeflError
from edgefl.experiment.step_costs import recorded_cost, row_of
from edgefl.files import write_file
from edgefl.flower.app import App, located_error
from edgefl.flower.messages import copied, copied_message, error_reply, node_id_of
from edgefl.flower.scenario import DeclaredSeconds
from edgefl.flower.virtual_time import AppTime, replaced, seeded
from edgefl.record.costs import StepRow
from edgefl.record.events import ABSENT
from edgefl.simulation.work import Work, work_on
from edgefl.simulation.world import World
from edgefl.validation import validated

RUN_ID = 1
"""The app's run; each simulated run is one of its own."""

NOTHING = StepCost(0, (), 0, 0, 0.0, 0.0, 0)


@dataclass(frozen=True)
class Answer:
    """The answer of a ``ClientApp`` to a message."""

    reply: Any  # its reply, or the error that it ended with
    context: Any  # the node's context after it
    cost: StepCost
    steps: int
    waits: float  # the seconds that no operator takes


class OperatorCount(Recorder):  # type: ignore[no-untyped-call]
    """Counts equal operators of the thread that enters together: an app may execute millions."""

    def __init__(self) -> None:
        super().__init__(with_data=True)
        self._counts: Counter[tuple[str, int, int, str, int, int]] = Counter()
        self._forward_macs = self._layer_macs = self._peak = 0

    def add(self, record: Record) -> None:
        self._counts[record.name, record.flops, record.bytes, record.kind, record.groups, record.pixels] += 1
        self._forward_macs += record.macs
        self._layer_macs += record.macs if record.layer else 0
        self._peak = max(self._peak, record.live)

    def _bring(self, tensor: Tensor) -> int:
        # An app may bring a new batch in every step, so what it brings is live only as long as it exists.
        key: int = tensor.untyped_storage()._cdata
        if key not in self._made:
            self._make(tensor)
        return key

    def cost(self) -> StepCost:
        """The cost of everything; products count as forward: an app does not say where its backward pass begins."""
        return StepCost(
            batch=0,
            operators=tuple(
                Operator(name, flops, bytes, count, kind, *loops)
                for (name, flops, bytes, kind, *loops), count in sorted(self._counts.items())
            ),
            layer_macs=self._layer_macs,
            forward_macs=self._forward_macs,
            training_flops=float(sum(flops * count for (_, flops, *_), count in self._counts.items())),
            bytes_touched=float(sum(bytes * count for (_, _, bytes, *_), count in self._counts.items())),
            peak_memory_bytes=self._peak,
        )


class Costs:
    """The costs of distinct work of a run, numbered as they occur, after ``before`` ones of the method's."""

    def __init__(self, before: int = 0) -> None:
        self._before = before
        self._numbers: dict[tuple[object, ...], int] = {}
        self.used: list[StepCost] = []

    def number(self, cost: StepCost, steps: int, waits: float) -> int:
        """The number of this work; ``waits`` are the seconds that no operator takes."""
        key = (cost.operators, cost.peak_memory_bytes, steps, waits)
        if key not in self._numbers:
            self._numbers[key] = self._before + len(self.used) + 1
            self.used.append(replace(cost, batch=self._numbers[key]))
        return self._numbers[key]


class DecidedDifferently(EdgeflError):  # noqa: N818  (what happened)
    """A ``ServerApp`` that is executed again for a resumption sends other messages than before."""


class Replies:
    """Keeps answers on disk: a resumed run returns them without calling the ``ClientApp``.

    Each is one file while its run is in progress: a line of JSON, then the reply and the node's context in Flower's own
    serialisation (protocol buffers). Reading them executes nothing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recorded(self, client: int, dispatch: int, digest: str) -> Answer | None:
        """The kept answer of a client; DecidedDifferently if it answers another message."""
        from flwr.common.serde import context_from_proto, message_from_proto
        from flwr.proto.message_pb2 import Context, Message

        file = self._file(client, dispatch)
        if not file.exists():
            return None
        head, _, content = file.read_bytes().partition(b"\n")
        known = json.loads(head)
        if known["message"] != digest:
            raise DecidedDifferently(
                f"message {dispatch + 1} to client {client} is not the one that it was before the interruption: the "
                "ServerApp decided differently when it is executed again (it may read a clock, or draw from a "
                "generator that edgefl does not seed), so the run cannot be resumed"
            )
        return Answer(
            reply=message_from_proto(Message.FromString(content[: known["reply"]])),
            context=context_from_proto(Context.FromString(content[known["reply"] :])),
            cost=recorded_cost(validated(StepRow, known["cost"])),
            steps=known["steps"],
            waits=known["waits"],
        )

    def record(self, client: int, dispatch: int, digest: str, answer: Answer) -> None:
        """Keep an answer at once, so that a kill in the middle of a round does not lose it."""
        from flwr.common.serde import context_to_proto, message_to_proto

        try:
            reply = message_to_proto(answer.reply).SerializeToString()
            context = context_to_proto(answer.context).SerializeToString()
        except Exception:  # noqa: BLE001  (the app keeps something that Flower cannot serialise)
            return
        head = {
            "message": digest,
            "reply": len(reply),
            "cost": row_of((1, 1, 0, "cpu"), answer.cost).model_dump(mode="json"),
            "steps": answer.steps,
            "waits": answer.waits,
        }
        self._folder.mkdir(exist_ok=True)
        write_file(self._file(client, dispatch), json.dumps(head).encode() + b"\n" + reply + context)

    def _file(self, client: int, dispatch: int) -> Path:
        return self._folder / f"{client}-{dispatch}"


class Clients:
    """The nodes of an app: each one has its context, in which the app keeps its state."""

    def __init__(
        self, app: App, world: World, clock: AppTime, *, declared: DeclaredSeconds, costs: Costs, replies: Replies
    ) -> None:
        from flwr.app import Context, RecordDict

        self._app, self._world, self._declared, self._clock = app, world, declared, clock
        self._costs, self._replies = costs, replies
        self._works: dict[tuple[int, int], Work] = {}  # by kind of device and number
        self._timed: set[bool] = set()
        self._noted: set[str] = set()
        self._contexts = [
            Context(
                run_id=RUN_ID,
                node_id=node_id_of(client),
                node_config={"partition-id": client, "num-partitions": world.setup.clients},
                state=RecordDict(),
                run_config=dict(app.run_config),
            )
            for client in range(world.setup.clients)
        ]

    def execute(self, client: int, message: Any, dispatch: int, digest: str) -> tuple[Answer, Work]:
        """Call the ``ClientApp`` with a message, which it may change, or return its recorded answer; and its work."""
        answer = self._replies.recorded(client, dispatch, digest)
        if answer is None:
            answer = self._call(client, message, dispatch)
            self._replies.record(client, dispatch, digest, answer)
        if message.metadata.message_type.startswith("train") and not answer.reply.has_error():
            self._timed.add(bool(answer.cost.operators or answer.waits))
        return answer, self._work_of(client, answer)

    def _work_of(self, client: int, answer: Answer) -> Work:
        fleet, steps, waits = self._world.setup.fleet, answer.steps, answer.waits
        group, number = int(fleet.group[client]), self._costs.number(answer.cost, steps, waits)
        work = self._works.get((group, number))
        if work is None:
            profile = fleet.profiles[group]
            more = steps - 1  # the roofline of all operators together contains the overhead of one step
            facts: dict[str, Any] = {"group": group, "alpha": 1, "samples": ABSENT, "steps": steps, "number": number}
            work = work_on(profile, {number: answer.cost}, {number: 1}, more=more, waits=waits, **facts)
            self._works[group, number] = work
            self._world.new_work(work, other_seconds=waits + more * profile.rates()[3])
        return work

    def _call(self, client: int, message: Any, dispatch: int) -> Answer:
        kind = message.metadata.message_type
        context = copy.copy(self._contexts[client])
        context.state, context.run_config = copied(context.state), dict(context.run_config)
        declared = self._declared.of(kind)
        counted, steps = OperatorCount(), Counter[str]()
        with (
            self._clock.in_client() as slept,
            seeded(self._world.setup.seed, "flower", client, dispatch),
            register_optimizer_step_post_hook(lambda *_: steps.update(["steps"])),
            loader_workers_reported(),
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
                reply = error_reply(message, "CLIENT_APP_RAISED_EXCEPTION", f"{type(error)}:<'{error}'>")
                where = located_error(error, self._app.folder)
                warnings.warn(f"client {client}: the ClientApp raised {where}", stacklevel=2)
        reply.metadata.__dict__["_message_id"] = f"reply to {message.metadata.message_id}"
        cost = counted.cost() if declared is None else NOTHING
        if kind not in self._noted:
            note_uncounted(cost.operators)
            self._noted.add(kind)
        waits = slept[0] + (declared if declared is not None and self._clock.called else 0.0)
        return Answer(reply, context, cost, steps["steps"] if declared is None else 0, waits)

    def keep(self, client: int, context: Any) -> None:
        self._contexts[client] = context

    def unknown_seconds(self) -> str | None:
        """A note that the seconds of training are unknown, if none of it executed an operator of PyTorch."""
        if self._timed != {False} or self._declared.train is not None:
            return None
        return (
            "training executed no operator of PyTorch in the ClientApp's thread, so its computing took 0 s; "
            "declare its seconds: --set 'flower.seconds={train: 30 s}'"
        )


@contextmanager
def loader_workers_reported() -> Iterator[None]:
    """Warn of data loaders with worker processes, whose operators are not counted."""
    original = dataloader._MultiProcessingDataLoaderIter

    def made(loader: Any) -> Any:
        warnings.warn("the app's DataLoader has worker processes; what they do takes no virtual seconds", stacklevel=2)
        return original(loader)

    with replaced((dataloader, "_MultiProcessingDataLoaderIter", made)):
        yield
