"""Flower's legacy server (``server_fn``, ``NumPyClient``): its threads take turns, and its clients register at once."""

from __future__ import annotations

import concurrent.futures
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import simpy

from edgefl.errors import UserError
from edgefl.flower.thread_scheduler import ThreadScheduler
from edgefl.flower.virtual_time import AppTime, replaced

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


class _Executor:
    """A ``ThreadPoolExecutor`` whose threads take turns with the world; it has as many threads as calls."""

    def __init__(self, threads: ThreadScheduler) -> None:
        self._threads = threads

    def __enter__(self) -> _Executor:
        return self

    def __exit__(self, *error: object) -> None:
        pass

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
