"""The simulator's event loop: ready queues, a timer heap, a virtual clock, and a seeded choice of what runs next.

Tasks, futures, locks, queues and timeouts of asyncio run on it unchanged. There are no sockets, threads or real time.
"""

import asyncio
import contextvars
import heapq
import math
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Generator
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack, cast

import msgspec

from seriatim.simulation.process import PROCESS, Process

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EVENTS_MAX = 5_000_000  # a healthy schedule has some ten thousand; beyond this something feeds itself for ever
_CANCELLED_TIMERS_MIN = 256  # below this a heap of cancelled timers costs less than sweeping it
_CLOSE_TRIES_MAX = 8  # awaits in `finally` blocks that a coroutine may offer before it is left alone


class CallbackOrder(StrEnum):
    """Which interleavings a schedule may show."""

    POSSIBLE = "possible"  # first in, first out within a process, any order among processes: what asyncio can do
    SHUFFLED = "shuffled"  # any ready callback: also what another loop, or tomorrow's code, could do


class UnhandledException(msgspec.Struct, frozen=True, kw_only=True):
    """An unhandled exception. In production it would be a line in the log; here it is a violation."""

    at: float
    process: str
    text: str


class NoProgress(Exception):
    """The schedule makes no progress: too many events, or nothing left that could finish what we wait for."""


if TYPE_CHECKING:
    _Loop = asyncio.BaseEventLoop  # for the type checker only: to it, a loop without sockets is abstract
else:
    _Loop = asyncio.AbstractEventLoop


class SimulatedLoop(_Loop):
    """One world's loop. Equal seeds and equal callbacks give equal runs."""

    def __init__(
        self, random: Random, *, order: CallbackOrder = CallbackOrder.POSSIBLE, events_max: int = EVENTS_MAX
    ) -> None:
        self.failures: list[UnhandledException] = []
        self.processes: list[Process] = []
        self.events_run = 0
        self._random = random
        self._shuffled = order is CallbackOrder.SHUFFLED
        self._events_max = events_max
        self._now = 0.0
        self._closed = False
        self._busy: list[Process] = []  # those with something ready, in no particular order
        self._timers: list[tuple[float, float, _Handle]] = []
        self._cancelled_timers = 0
        self.world = Process(self, "world", random=random)
        self.running = self.world

    # --- running ---------------------------------------------------------------------------------------------------

    def run_until(self, deadline: float, stop: Callable[[], bool] | None = None) -> bool:
        """Runs everything up to that virtual time. `stop` is asked before each move of the clock; True if it agreed."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            while True:
                self._run_ready()
                if stop is not None and stop():
                    return True
                if not self._next_timers(deadline):
                    if deadline != math.inf:
                        self._now = max(self._now, float(deadline))
                    return False
        finally:
            asyncio._set_running_loop(before)

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        """Runs the world until this is done, and returns its result."""
        main = asyncio.ensure_future(cast(Awaitable[T], future), loop=self)
        self.run_until(math.inf, main.done)
        if not main.done():
            raise NoProgress("nothing is left to run, and what we wait for is not done")
        return main.result()

    def time(self) -> float:
        return self._now

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def get_debug(self) -> bool:
        return False

    def _run_ready(self) -> None:
        busy, random, shuffled = self._busy, self._random.random, self._shuffled
        events, events_max = self.events_run, self._events_max
        try:
            while busy:
                count = len(busy)
                index = int(random() * count) if count > 1 else 0
                process = busy[index]
                ready = process.ready
                if shuffled and len(ready) > 1:
                    ready.rotate(-int(random() * len(ready)))
                handle = ready.popleft()
                if not ready:
                    process.queued = False
                    last = busy.pop()
                    if last is not process:
                        busy[index] = last
                if handle._cancelled:
                    continue
                events += 1
                self.running = process
                try:
                    handle.context.run(handle.callback, *handle.args)
                except Exception as error:
                    self._failed("a callback raised", error)
                if events >= events_max:
                    raise NoProgress(f"{events} events and no end")
        finally:
            self.events_run = events
            self.running = self.world

    def _next_timers(self, deadline: float) -> bool:
        """Moves the clock to the next timer and makes all that are due then ready; False if none is due by then."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
            self._cancelled_timers -= 1
        if not timers or timers[0][0] > deadline:
            return False
        now = self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= now:
            handle = heapq.heappop(timers)[2]
            handle.is_timer = False
            if handle._cancelled:
                self._cancelled_timers -= 1
            else:
                self._make_ready(handle)
        return True

    # --- scheduling ------------------------------------------------------------------------------------------------

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> "_Handle":
        if context is None:
            context = contextvars.copy_context()
        process = context.get(PROCESS, self.world)
        handle = _Handle(callback, args, context, process, self._now)
        # The same as _make_ready: written out because most events of a schedule pass here.
        if process.alive and not self._closed:
            process.ready.append(handle)
            if not process.queued and not process.paused:
                process.queued = True
                self._busy.append(process)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> "_Handle":
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> "_Handle":
        if context is None:
            context = contextvars.copy_context()
        process = context.get(PROCESS, self.world)
        handle = _Handle(callback, args, context, process, when)
        if process.alive and not self._closed:
            handle.is_timer = True
            heapq.heappush(self._timers, (when, self._random.random(), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        if context is None:
            context = contextvars.copy_context()
        task = asyncio.Task(coro, loop=self, name="task" if name is None else str(name), context=context)
        if self._closed:
            _discard_task(task)  # started by a `finally` block, after the end of the world
        else:
            context.get(PROCESS, self.world).keep(task)
        return task

    def make_runnable(self, process: Process) -> None:
        """The process has work and may do it."""
        if process.ready and process.alive and not process.paused and not process.queued:
            process.queued = True
            self._busy.append(process)

    def make_idle(self, process: Process) -> None:
        """The process does nothing until it is made runnable again."""
        if process.queued:
            process.queued = False
            self._busy.remove(process)

    def _make_ready(self, handle: "_Handle") -> None:
        process = handle.process
        if process.alive:
            process.ready.append(handle)
            self.make_runnable(process)

    def _timer_cancelled(self) -> None:
        """Cancelled timers stay in the heap until they are the majority."""
        self._cancelled_timers += 1
        if self._cancelled_timers > _CANCELLED_TIMERS_MIN and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2]._cancelled]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    # --- failures and the end --------------------------------------------------------------------------------------

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """asyncio reports exceptions here that were never retrieved."""
        self._failed(str(context.get("message")), context.get("exception"))

    def fingerprint(self) -> str:
        """Changes if anything in the run changed: every choice has moved the random state."""
        return f"{self.events_run}:{self._now!r}:{self._random.getrandbits(64):016x}"

    def close(self) -> None:
        """Ends the world: from here on nothing is scheduled, and what still waits is dropped without a sound.

        Only now do the `finally` blocks of crashed and unfinished tasks run; whatever they do has no effect.
        Before that, exceptions of tasks that were never awaited become failures.
        """
        if self._closed:
            return
        for process in self.processes:
            if process.alive:
                self.running = process
                for error in process.unseen_errors():
                    self._failed("a task that failed was never awaited", error)
        self._closed = True
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            for process in self.processes:
                process.ready.clear()
                for task in process.tasks:
                    _discard_task(task)
                process.tasks.clear()
            self._busy.clear()
            self._timers.clear()
        finally:
            asyncio._set_running_loop(before)

    def is_closed(self) -> bool:
        return self._closed

    def _failed(self, message: str, error: BaseException | None) -> None:
        if self._closed:
            return
        text = message if error is None else f"{message}: {describe_error(error)}"
        self.failures.append(UnhandledException(at=self._now, process=self.running.lane, text=text))


class _Handle(asyncio.TimerHandle):
    """What asyncio gets back from call_soon and call_at: it may cancel it, no more."""

    __slots__ = ("args", "callback", "context", "is_timer", "process")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
        process: Process,
        when: float,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.process = process
        self.is_timer = False
        self._when = when
        self._cancelled = False

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self.callback, self.args = _nothing, ()
            if self.is_timer:
                self.process.loop._timer_cancelled()


def _nothing() -> None:
    """Replaces a cancelled callback, so that what it referenced can be freed."""


def _discard_task(task: asyncio.Task[Any]) -> None:
    """Closes what the task was running and keeps asyncio from complaining about it."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    if task.done():
        task._log_traceback = False
        return
    coroutine = task.get_coro()
    for _ in range(_CLOSE_TRIES_MAX):
        try:
            if coroutine is not None:
                coroutine.close()
        except BaseException:
            continue  # it awaited or raised in a `finally` block: a crash would not have let it
        return


def describe_error(error: BaseException) -> str:
    """The exception and the place it came from, on one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"
