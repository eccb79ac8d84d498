"""The setup of one run of an app."""

import concurrent.futures
import itertools
import math
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import simpy

from edgefl.cost.measure import StepCost
from edgefl.errors import UserError
from edgefl.fleet import assign
from edgefl.flower.app import loaded, located_error
from edgefl.flower.client_work import RUN_ID, Clients, Costs, Replies
from edgefl.flower.grid import AppBook, AppRun, VirtualGrid
from edgefl.flower.messages import Metrics, observed
from edgefl.flower.scenario import AppMethod, AppScenario
from edgefl.flower.thread_scheduler import ThreadScheduler
from edgefl.flower.virtual_time import AppTime, replaced, seeded, virtual_time
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.payload import ModelSizes
from edgefl.record.events import Listener
from edgefl.record.metric import ACCURACY
from edgefl.scenario.sections import values_of
from edgefl.scheduling.selection.base import Facts, selection
from edgefl.simulation.accounts import Limits
from edgefl.simulation.protocols.base import Course
from edgefl.simulation.protocols.synchronous import SynchronousSpec
from edgefl.simulation.rounds import RoundBook
from edgefl.simulation.run import Outcome, simulate_run
from edgefl.simulation.setup import Setup, connected
from edgefl.simulation.world import World
from edgefl.training.job import Evaluation, NeutralLearner

REGISTRATION_SECONDS = 5.0
"""The interval at which Flower's legacy server looks for new nodes (``flwr.server.compat.app_utils``)."""

PATIENCE_SECONDS = 86400.0
"""How long it waits for enough nodes (``flwr.server.client_manager``)."""


class _Future(concurrent.futures.Future[Any]):
    """A future with the number of its call; Flower keeps futures in sets, whose order depends on addresses."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.number = next(self._numbers)
        self.done_event: simpy.Event | None = None


class _Executor(concurrent.futures.Executor):
    """A ``ThreadPoolExecutor`` whose threads take turns with the world; it has as many threads as calls."""

    def __init__(self, threads: ThreadScheduler) -> None:
        self._threads = threads

    def submit(self, act: Callable[..., Any], /, *arguments: Any, **options: Any) -> _Future:
        future = _Future()

        def execute() -> None:
            try:
                result = act(*arguments, **options)
            except Exception as error:  # noqa: BLE001  (the future has it)
                future.set_exception(error)
            else:
                future.set_result(result)

        future.done_event = self._threads.start(f"call {future.number}", execute)
        return future


@contextmanager
def legacy_server(clock: AppTime) -> Iterator[None]:
    """Within the block, Flower's legacy server runs in virtual time."""
    import flwr.server.compat.app as legacy
    import flwr.server.workflow.default_workflows as workflows
    from flwr.server import server

    def wait(fs: Iterable[_Future], **_: object) -> tuple[list[_Future], list[_Future]]:
        futures = sorted(fs, key=lambda each: each.number)
        events = [each.done_event for each in futures if each.done_event is not None]
        if events:
            clock.running.threads.wait(clock.running.env.all_of(events))
        return futures, []

    def executor(max_workers: int | None = None) -> _Executor:
        if max_workers is not None:
            sentence = "edgefl does not support max_workers of Flower's legacy server; remove it"
            clock.running.threads.fail(UserError(sentence, field="flower.app"))
        return _Executor(clock.running.threads)

    def registering(grid: Any, client_manager: Any) -> Any:
        return _registering(grid, client_manager, clock)

    futures = SimpleNamespace(**vars(concurrent.futures))
    futures.ThreadPoolExecutor, futures.wait = executor, wait
    with replaced(
        (server, "concurrent", SimpleNamespace(futures=futures)),
        (legacy, "start_update_client_manager_thread", registering),
        (workflows, "start_update_client_manager_thread", registering),
    ):
        yield


def _registering(grid: Any, manager: Any, clock: AppTime) -> tuple[threading.Thread, threading.Event, threading.Event]:
    """Keep the client manager's nodes those of the grid, without a thread of its own."""
    from flwr.server.compat.grid_client_proxy import GridClientProxy

    registered: dict[int, Any] = {}

    def update() -> None:
        present = grid.get_node_ids()
        for node in sorted(set(registered) - set(present)):
            manager.unregister(registered.pop(node))
        for node in present:
            if node not in registered:
                proxy = GridClientProxy(node_id=node, grid=grid, run_id=grid.run.run_id)
                if manager.register(proxy):
                    registered[node] = proxy

    def updated(call: Callable[..., Any]) -> Callable[..., Any]:
        def first_update(*arguments: Any, **options: Any) -> Any:
            update()
            return call(*arguments, **options)

        return first_update

    def wait_for(num_clients: int, timeout: float = PATIENCE_SECONDS) -> bool:
        # A time-out of the app's own is a decision; the default one only limits a wait for ever.
        sleep = clock.sleep if timeout < PATIENCE_SECONDS else clock.sleep_for_nodes
        env = clock.running.env
        end = env.now + timeout
        update()
        while len(registered) < num_clients and env.now < end:
            sleep(min(REGISTRATION_SECONDS, end - env.now))
            update()
        return len(registered) >= num_clients

    for name in ("num_available", "all", "sample"):
        setattr(manager, name, updated(getattr(manager, name)))
    manager.wait_for = wait_for  # the one that ``sample`` calls
    done = threading.Event()
    done.set()
    thread = threading.Thread(target=lambda: None)
    thread.start()
    return thread, threading.Event(), done


MAXIMUM_ROUNDS = 10_000_000
"""An app ends by itself."""


class AppLearner(NeutralLearner):
    """Returns the app's own metrics; the app trains in its own code."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def evaluate(self, version: int) -> Evaluation:
        return self._metrics.evaluation() or super().evaluate(version)


def limits_of(scenario: AppScenario) -> Limits:
    """The budgets and targets of one run, none reached yet."""
    smoothed = scenario.target_metric.endswith("_ema")
    return Limits(scenario.budgets.limits(), values_of(scenario.targets), ACCURACY, smoothed=smoothed)


def run_app(
    scenario: AppScenario,
    method: AppMethod,
    seed: int,
    *,
    costs: Costs,
    replies: Replies,
    listeners: Sequence[Listener],
) -> Outcome:
    """Import an app and run it once in a simulated world."""
    from flwr.app import Context, RecordDict
    from flwr.common.constant import SUPERLINK_NODE_ID
    from flwr.supercore.run import Run
    from flwr.supercore.task_identity import TaskIdentity

    spec, metrics, clock = scenario.app_of(method), Metrics(scenario.flower.metric), AppTime()
    with (
        seeded(seed, "flower server"),
        virtual_time(clock),
        legacy_server(clock),
        observed(metrics),
        replaced(  # who messages are from, which Flower's processes set when they start
            (TaskIdentity, "_task_id", 1),
            (TaskIdentity, "_run_id", RUN_ID),
            (TaskIdentity, "_node_id", SUPERLINK_NODE_ID),
        ),
        loaded(spec) as app,
    ):
        clients: Clients | None = None

        def course(world: World) -> tuple[RoundBook, Course]:
            nonlocal clients
            clients = Clients(app, world, clock, declared=spec.seconds, costs=costs, replies=replies)
            book, state = AppBook(world, metrics), RecordDict()
            context = Context(RUN_ID, SUPERLINK_NODE_ID, {}, state, dict(app.run_config))
            clock.run = running = AppRun(
                world,
                book,
                clients=clients,
                metrics=metrics,
                main=lambda: app.server(VirtualGrid(world, running, Run.create_empty(RUN_ID)), context),
                error_in_words=lambda error: located_error(error, app.folder),
            )
            return book, running

        try:
            outcome = simulate_run(_setup(scenario, method.label, seed, metrics=metrics, listeners=listeners), course)
        finally:
            if clock.run is not None:
                clock.run.threads.stop()
    if clients is not None and (note := clients.unknown_seconds()) is not None:
        warnings.warn(f"{method.label}: {note}", stacklevel=2)
    if metrics.whole == 100:
        warnings.warn(f"{method.label}: the app's accuracy is read as per cent, because it began above 1", stacklevel=2)
    if metrics.names and outcome.rows and not any(math.isfinite(row.metric) for row in outcome.rows):
        names, chosen = ", ".join(sorted(metrics.names)), scenario.flower.metric
        message = f"none of the app's metrics is an accuracy ({names}); choose one with flower.metric"
        if chosen is not None:
            message = f"flower.metric: expected one that the app computes after a round ({names}), found '{chosen}'"
        warnings.warn(message, stacklevel=2)
    return outcome


def _setup(scenario: AppScenario, label: str, seed: int, *, metrics: Metrics, listeners: Sequence[Listener]) -> Setup:
    fleet = assign(scenario.fleet, scenario.data.clients, seed)
    return Setup(
        **connected(fleet, scenario.network, seed),
        fleet=fleet,
        seed=seed,
        label=label,
        rounds=MAXIMUM_ROUNDS,
        cohort=scenario.data.clients,
        protocol=SynchronousSpec(),
        # The app takes the place of these: it selects clients, and its messages have sizes of their own.
        method=build_method("fedavg", LocalOptions()),
        scheduler=None,
        selector=selection("uniform").start(seed),
        facts=Facts(),
        sizes=ModelSizes((0,)),
        cost=_no_step,
        samples=np.zeros(scenario.data.clients, np.int64),
        learner=AppLearner(metrics),
        limits=limits_of(scenario),
        stop=scenario.stop,
        failures=scenario.failures,
        listeners=listeners,
    )


def _no_step(*_: object) -> StepCost:
    raise AssertionError("an app's work is not measured by local steps")
