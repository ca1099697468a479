"""A simulated process: tasks and timers that share a clock and crash together. A crash stops them between two steps.

An object is one life of a process; a restart is a new object, so nothing of the old life can touch the new one.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

if TYPE_CHECKING:
    from seriatim.simulation.loop import SimulatedLoop, _Handle

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH_MS = 1_769_783_400_000  # 2026-01-30T14:30:00Z: where every world's wall clock begins
_SWEEP_TASKS_MIN = 64

PROCESS: contextvars.ContextVar["Process"] = contextvars.ContextVar("simulated_process")


class Process:
    """One life of a process. Whatever is started through it, and whatever that starts, belongs to it."""

    def __init__(
        self, loop: "SimulatedLoop", name: str, *, random: Random, generation: int = 0, skew_s: float = 0.0
    ) -> None:
        self.loop = loop
        self.name = name
        self.generation = generation
        self.lane = f"{name}.{generation}" if generation else name
        self.alive = True
        self.paused = False
        self.leaving = False  # it drains before it ends
        self.resumed_at = 0.0
        self.clock = SimulatedClock(loop, random, skew_s)
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)
        # Kept by the loop:
        self.ready: deque[_Handle] = deque()
        self.queued = False
        self.tasks: list[asyncio.Task[Any]] = []
        self._sweep_at = _SWEEP_TASKS_MIN
        loop.processes.append(self)

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        return self.loop.create_task(coroutine, name=name, context=self.context.copy())

    def start(self, coroutine: Coroutine[Any, Any, object], *, name: str | None = None) -> None:
        """Spawns it for its effect: it is not awaited, so an exception of it is a failure of the schedule."""
        _ = self.spawn(coroutine, name=name)

    def call_soon(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> asyncio.Handle:
        return self.loop.call_soon(callback, *args, context=self.context.copy())

    def call_at(self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> asyncio.TimerHandle:
        return self.loop.call_at(when, callback, *args, context=self.context.copy())

    def call_later(self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> asyncio.TimerHandle:
        return self.loop.call_at(self.loop.time() + delay, callback, *args, context=self.context.copy())

    def run(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        """Calls it now, as this process: what it starts belongs to the process."""
        return self.context.copy().run(function, *args)

    def crash(self) -> None:
        """The process is gone: no handler and no `finally` block of it runs, what it had sent stays on its way.

        Its tasks are kept until the world ends, or freeing them would run their `finally` blocks after all.
        """
        if self.loop.running is self:
            raise RuntimeError(f"{self.lane} cannot crash in the middle of its own step: let the world do it")
        self.loop.make_idle(self)
        self.alive = False

    def pause(self) -> None:
        """The process runs nothing (a long garbage collection, a frozen machine) while the world goes on."""
        self.paused = True
        self.loop.make_idle(self)

    def resume(self) -> None:
        """The process goes on, and finds all its timers overdue."""
        self.paused = False
        self.resumed_at = self.loop.time()
        self.loop.make_runnable(self)

    def restart(self, *, random: Random, skew_s: float = 0.0) -> "Process":
        """The next life, in which nothing has been started yet."""
        if self.alive:
            raise RuntimeError(f"{self.lane} still lives")
        return Process(self.loop, self.name, random=random, generation=self.generation + 1, skew_s=skew_s)

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Holds the task until it is done and its outcome was seen."""
        tasks = self.tasks
        tasks.append(task)
        if len(tasks) > self._sweep_at:
            tasks[:] = [each for each in tasks if not each.done() or each._log_traceback]
            self._sweep_at = 2 * len(tasks) + _SWEEP_TASKS_MIN

    def unseen_errors(self) -> list[BaseException]:
        """Exceptions that ended a task and were never retrieved."""
        failed = [task for task in self.tasks if task.done() and task._log_traceback]
        return [error for error in (task.exception() for task in failed) if error is not None]


class SimulatedClock:
    """Implements `ports.clock.Clock`: virtual time, wrong by `skew_s`, and random numbers from the seed."""

    def __init__(self, loop: "SimulatedLoop", random: Random, skew_s: float) -> None:
        self._loop = loop
        self._random = random
        self.skew_s = skew_s

    def now_ms(self) -> int:
        return EPOCH_MS + int((self._loop.time() + self.skew_s) * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def random(self) -> float:
        return self._random.random()

    def random_bits(self, bits: int) -> int:
        return self._random.getrandbits(bits)


def current_process() -> Process | None:
    """The process whose code is running, None outside of every simulation."""
    return PROCESS.get(None)
