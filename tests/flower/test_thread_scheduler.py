"""Threads of an app and the simulated world take turns."""

import threading

import pytest

from edgefl.flower import thread_scheduler as module
from edgefl.flower.thread_scheduler import ThreadScheduler
from edgefl.simulation.clock import Clock


def played(*lives):
    """The moments at which threads were at certain places, and the clock at the end."""
    env, seen = Clock(), []
    scheduler = ThreadScheduler(env)
    for number, life in enumerate(lives):
        scheduler.start(
            f"thread {number}",
            lambda life=life, number=number: life(
                env, scheduler, lambda what, n=number: seen.append((env.now, n, what))
            ),
        )
    env.process(scheduler.play())
    assert env.run_until(env.event()) is None
    return env, scheduler, seen


def waiting(*seconds):
    def life(env, scheduler, see):
        for each in seconds:
            see("waits")
            scheduler.wait(env.timeout(each))
        see("ends")

    return life


def test_threads_run_one_after_another_in_the_order_of_their_events():
    _, _, seen = played(waiting(2, 2), waiting(1, 3))
    assert seen == [
        (0, 0, "waits"), (0, 1, "waits"), (1, 1, "waits"), (2, 0, "waits"), (4, 1, "ends"), (4, 0, "ends"),
    ]  # fmt: skip


def test_a_thread_can_wait_for_others_that_it_starts():
    def main(env, scheduler, see):
        ends = [
            scheduler.start(f"call {seconds}", lambda s=seconds: scheduler.wait(env.timeout(s))) for seconds in (5, 3)
        ]
        scheduler.wait(env.all_of(ends))
        see("all ended")

    _, _, seen = played(main)
    assert seen == [(5, 0, "all ended")]


def test_an_error_of_a_thread_is_raised_in_the_world():
    def life(env, scheduler, see):
        scheduler.wait(env.timeout(3))
        raise ValueError("broken")

    with pytest.raises(module.AppRaised) as raised:
        played(life)
    assert str(raised.value.error) == "broken"


def test_what_a_thread_asks_of_the_world_happens_in_the_worlds_thread():
    def life(env, scheduler, see):
        scheduler.wait(env.timeout(2))
        see(scheduler.in_world(threading.current_thread) is not threading.current_thread())
        see(scheduler.in_world(scheduler.holds))

    assert [what for _, _, what in played(life)[2]] == [True, False]


def test_an_error_of_the_world_cannot_be_caught_by_the_thread_that_causes_it():
    env, seen = Clock(), []
    scheduler = ThreadScheduler(env)

    def life():
        try:
            scheduler.in_world(lambda: int("none"))
        except Exception:  # noqa: BLE001
            seen.append("caught")

    scheduler.start("one", life)
    env.process(scheduler.play())
    with pytest.raises(ValueError, match="none"):
        env.run_until(env.event())
    scheduler.stop()
    scheduler.stop()
    assert seen == []


def test_stopping_ends_waiting_threads_and_refuses_further_waits():
    env, ended = Clock(), []
    scheduler = ThreadScheduler(env)

    def life():
        try:
            scheduler.wait(env.event())
        finally:
            with pytest.raises(module.AppStopped):
                scheduler.wait(env.timeout(1))
            ended.append(threading.current_thread())

    scheduler.start("one", life)
    env.process(scheduler.play())
    env.run_until(env.timeout(1))
    scheduler.stop()
    assert len(ended) == 1
    ended[0].join(10)
    assert not ended[0].is_alive()
