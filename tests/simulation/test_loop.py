"""The simulator's loop runs asyncio's own tools, moves a virtual clock, and repeats itself exactly."""

import asyncio
from random import Random

import pytest

from seriatim.simulation.loop import CallbackOrder, NoProgress, SimulatedLoop
from seriatim.simulation.process import Process


def a_loop(seed: int = 1, order: CallbackOrder = CallbackOrder.POSSIBLE, events_max: int = 100_000) -> SimulatedLoop:
    return SimulatedLoop(Random(seed), order=order, events_max=events_max)


def two_processes(loop: SimulatedLoop) -> tuple[Process, Process]:
    return Process(loop, "a", random=Random(1)), Process(loop, "b", random=Random(2))


def an_interleaving(seed: int, order: CallbackOrder) -> str:
    """Two processes append three letters each, in whichever order the loop runs them."""
    loop, seen = a_loop(seed, order), list[str]()
    for process in two_processes(loop):
        for number in range(3):
            process.call_soon(seen.append, f"{process.name}{number}")
    loop.run_until(1.0)
    loop.close()
    return " ".join(seen)


def test_an_hour_of_sleep_takes_no_time_and_ends_exactly_on_the_hour() -> None:
    loop = a_loop()
    loop.run_until_complete(asyncio.sleep(3600.0))
    assert loop.time() == 3600.0


def test_timers_run_in_the_order_of_their_times() -> None:
    loop, seen = a_loop(), list[float]()
    for delay in (0.3, 0.1, 0.2):
        loop.call_later(delay, seen.append, delay)
    loop.run_until(1.0)
    assert seen == [0.1, 0.2, 0.3]


def test_run_until_stops_at_the_deadline_and_goes_on_from_there() -> None:
    loop, seen = a_loop(), list[float]()
    loop.call_later(1.0, lambda: seen.append(loop.time()))
    loop.run_until(0.5)
    assert (seen, loop.time()) == ([], 0.5)
    loop.run_until(1.0)
    assert seen == [1.0]


def test_run_until_returns_when_its_condition_holds_before_the_clock_moves() -> None:
    loop, seen = a_loop(), list[int]()
    loop.call_later(1.0, seen.append, 1)
    loop.call_later(2.0, seen.append, 2)
    assert loop.run_until(10.0, lambda: len(seen) == 1)
    assert (seen, loop.time()) == ([1], 1.0)


def test_a_cancelled_callback_never_runs() -> None:
    loop, seen = a_loop(), list[int]()
    loop.call_soon(seen.append, 1).cancel()
    loop.call_later(0.1, seen.append, 2).cancel()
    loop.run_until(1.0)
    assert seen == []


def test_thousands_of_cancelled_timers_are_swept_and_the_others_still_run_in_order() -> None:
    loop, seen = a_loop(), list[int]()
    handles = [loop.call_later(1.0 + number, seen.append, number) for number in range(2000)]
    for number, handle in enumerate(handles):
        if number % 100:
            handle.cancel()
    assert len(loop._timers) < 1000
    loop.run_until(3000.0)
    assert seen == list(range(0, 2000, 100))


def test_the_tools_of_asyncio_run_unchanged() -> None:
    async def main() -> list[str]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)
        lock, opened, seen = asyncio.Lock(), asyncio.Event(), list[str]()

        async def produce() -> None:
            for number in range(5):
                await queue.put(number)
            opened.set()

        async def consume() -> None:
            for _ in range(5):
                number = await queue.get()
                async with lock:
                    await asyncio.sleep(0.01)
                    seen.append(str(number))

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            group.create_task(consume())
        await opened.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.sleep(2.0)
        seen.extend(await asyncio.gather(asyncio.sleep(0.2, "slow"), asyncio.sleep(0.1, "fast")))
        return seen

    assert a_loop().run_until_complete(main()) == ["0", "1", "2", "3", "4", "slow", "fast"]


@pytest.mark.parametrize("order", list(CallbackOrder))
def test_one_seed_always_gives_one_interleaving(order: CallbackOrder) -> None:
    assert {an_interleaving(7, order) for _ in range(5)} == {an_interleaving(7, order)}


@pytest.mark.parametrize("order", list(CallbackOrder))
def test_seeds_give_many_interleavings(order: CallbackOrder) -> None:
    assert len({an_interleaving(seed, order) for seed in range(200)}) >= 18  # of 20 in order, of 720 shuffled


def test_possible_schedules_keep_the_order_within_a_process() -> None:
    for seed in range(50):
        seen = an_interleaving(seed, CallbackOrder.POSSIBLE).split()
        assert [each for each in seen if each[0] == "a"] == ["a0", "a1", "a2"]


def test_shuffled_schedules_break_the_order_within_a_process() -> None:
    firsts = {an_interleaving(seed, CallbackOrder.SHUFFLED).replace("b", "").split("a", 1)[1][0] for seed in range(50)}
    assert firsts == {"0", "1", "2"}


def test_timers_of_one_moment_run_in_any_order() -> None:
    def first(seed: int) -> int:
        loop, seen = a_loop(seed), list[int]()
        for number in range(3):
            loop.call_at(1.0, seen.append, number)
        loop.run_until(1.0)
        return seen[0]

    assert {first(seed) for seed in range(50)} == {0, 1, 2}


def test_equal_runs_have_equal_fingerprints_and_different_ones_do_not() -> None:
    def fingerprint(seed: int, sleeps: int) -> str:
        async def main() -> None:
            for _ in range(sleeps):
                await asyncio.sleep(0.1)

        loop = a_loop(seed)
        loop.run_until_complete(main())
        return loop.fingerprint()

    assert fingerprint(1, 3) == fingerprint(1, 3)
    assert len({fingerprint(1, 3), fingerprint(2, 3), fingerprint(1, 4)}) == 3


def test_an_exception_in_a_callback_is_a_failure_and_the_world_goes_on() -> None:
    loop, seen = a_loop(), list[int]()
    process, _ = two_processes(loop)
    process.call_soon(lambda: 1 // 0)
    process.call_later(0.1, seen.append, 1)
    loop.run_until(1.0)
    assert seen == [1]
    assert [(failure.process, "ZeroDivisionError" in failure.text) for failure in loop.failures] == [("a", True)]


def test_a_failed_task_that_was_never_awaited_is_a_failure_at_the_end() -> None:
    async def fail() -> None:
        raise ValueError("unseen")

    loop = a_loop()
    process, _ = two_processes(loop)
    process.start(fail())
    loop.run_until(1.0)
    loop.close()
    assert [(failure.process, "unseen" in failure.text) for failure in loop.failures] == [("a", True)]


def test_a_failed_task_that_was_awaited_is_no_failure() -> None:
    async def fail() -> None:
        raise ValueError("seen")

    async def main() -> None:
        with pytest.raises(ValueError, match="seen"):
            await asyncio.create_task(fail())

    loop = a_loop()
    loop.run_until_complete(main())
    loop.close()
    assert loop.failures == []


def test_a_world_that_feeds_itself_for_ever_is_stopped() -> None:
    loop = a_loop(events_max=1000)

    def again() -> None:
        loop.call_soon(again)

    loop.call_soon(again)
    with pytest.raises(NoProgress):
        loop.run_until(1.0)
    assert loop.events_run == 1000


def test_waiting_for_what_can_never_come_is_an_error() -> None:
    loop = a_loop()
    with pytest.raises(NoProgress):
        loop.run_until_complete(loop.create_future())


def test_closing_drops_what_still_waits_without_a_sound() -> None:
    tried, more = list[str](), list[asyncio.Task[None]]()

    async def stubborn() -> None:
        try:
            await asyncio.sleep(100.0)
        finally:
            await asyncio.sleep(1.0)
            tried.append("awaited in the end")

    async def starts_more() -> None:
        try:
            await asyncio.sleep(100.0)
        finally:
            asyncio.get_running_loop().call_soon(tried.append, "called in the end")
            more.append(asyncio.create_task(stubborn()))

    loop = a_loop()
    loop.world.start(stubborn())
    loop.world.start(starts_more())
    loop.run_until(1.0)
    loop.close()
    loop.run_until(300.0)
    assert (tried, loop.failures) == ([], [])
