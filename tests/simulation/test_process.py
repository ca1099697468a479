"""A crash is a crash: no handler runs, nothing of the old life reaches the new one, and others notice nothing."""

import asyncio
from random import Random

import pytest

from seriatim.simulation.loop import SimulatedLoop
from seriatim.simulation.process import EPOCH_MS, Process, current_process


def a_process(seed: int = 1, name: str = "ingest") -> Process:
    return Process(SimulatedLoop(Random(seed)), name, random=Random(seed))


async def tidy(seen: list[str]) -> None:
    """A task that would clean up after itself if it were given the chance."""
    try:
        seen.append("began")
        await asyncio.sleep(1.0)
        seen.append("slept")
    except BaseException:
        seen.append("handled")
        raise
    finally:
        seen.append("cleaned up")


def test_a_crashed_process_runs_neither_handlers_nor_finally_blocks() -> None:
    process, seen = a_process(), list[str]()
    process.start(tidy(seen))
    process.loop.run_until(0.5)
    process.crash()
    process.loop.run_until(10.0)
    assert seen == ["began"]


def test_a_crashed_task_stays_silent_even_when_what_it_waited_for_is_freed() -> None:
    """Freeing the future would free the task, and freeing the task would run its finally block."""
    process, seen = a_process(), list[str]()
    waited_for = [process.loop.create_future()]

    async def wait() -> None:
        try:
            await waited_for[0]
        finally:
            seen.append("cleaned up")

    process.start(wait())
    process.loop.run_until(0.5)
    process.crash()
    waited_for.clear()
    process.loop.run_until(1.0)
    assert seen == []


def test_a_callback_that_was_ready_when_the_process_crashed_never_runs() -> None:
    process, seen = a_process(), list[str]()
    process.call_soon(seen.append, "ran")
    process.crash()
    process.call_soon(seen.append, "ran after all")
    process.loop.run_until(1.0)
    assert seen == []


def test_a_process_that_never_ran_can_crash_without_a_warning() -> None:
    process, seen = a_process(), list[str]()
    process.start(tidy(seen))
    process.crash()
    process.loop.run_until(1.0)
    process.loop.close()
    assert (seen, process.loop.failures) == ([], [])


def test_a_crash_leaves_other_processes_alone() -> None:
    process, seen = a_process(), list[str]()
    other = Process(process.loop, "other", random=Random(2))
    other.start(tidy(seen))
    process.crash()
    process.loop.run_until(10.0)
    assert seen == ["began", "slept", "cleaned up"]


def test_a_process_cannot_crash_in_the_middle_of_its_own_callback() -> None:
    process = a_process()
    process.call_soon(process.crash)
    process.loop.run_until(1.0)
    assert process.alive
    assert "cannot crash" in process.loop.failures[0].text


def test_what_failed_in_a_process_that_crashed_later_is_no_violation() -> None:
    async def fail() -> None:
        raise ValueError("lost with the process")

    process = a_process()
    process.start(fail())
    process.loop.run_until(0.5)
    process.crash()
    process.loop.close()
    assert process.loop.failures == []


def test_a_restart_is_a_new_life_that_old_timers_cannot_reach() -> None:
    process, seen = a_process(), list[str]()
    process.call_later(1.0, seen.append, "old")
    process.crash()
    reborn = process.restart(random=Random(3))
    reborn.call_later(1.0, seen.append, "new")
    process.loop.run_until(2.0)
    assert seen == ["new"]
    assert (reborn.name, reborn.generation, reborn.lane) == ("ingest", 1, "ingest.1")


def test_only_the_dead_are_restarted() -> None:
    with pytest.raises(RuntimeError, match="still lives"):
        a_process().restart(random=Random(1))


def test_everything_a_process_starts_belongs_to_it() -> None:
    process, owners = a_process(), list[Process | None]()

    async def start_more() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: owners.append(current_process()))
        loop.call_later(0.1, lambda: owners.append(current_process()))
        async with asyncio.TaskGroup() as group:
            group.create_task(note())

    async def note() -> None:
        await asyncio.sleep(0.2)
        owners.append(current_process())

    process.start(start_more())
    process.loop.run_until(1.0)
    assert owners == [process, process, process]


def test_a_paused_process_stands_still_and_then_catches_up() -> None:
    process, seen = a_process(), list[float]()
    process.call_soon(lambda: seen.append(process.loop.time()))
    process.pause()
    process.call_later(1.0, lambda: seen.append(process.loop.time()))
    process.loop.run_until(5.0)
    assert seen == []
    process.resume()
    process.loop.run_until(6.0)
    assert seen == [5.0, 5.0]


def test_a_wall_clock_is_wrong_by_its_skew_and_the_monotonic_one_is_not() -> None:
    loop = SimulatedLoop(Random(1))
    process = Process(loop, "gateway", random=Random(1), skew_s=-1.5)
    loop.run_until(10.0)
    assert process.clock.now_ms() == EPOCH_MS + 8_500
    assert process.clock.monotonic() == 10.0


def test_one_seed_gives_one_sequence_of_chance() -> None:
    def draws(seed: int) -> tuple[float, int]:
        clock = a_process(seed).clock
        return clock.random(), clock.random_bits(80)

    assert draws(5) == draws(5) != draws(6)
