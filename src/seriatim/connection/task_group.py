"""Groups of background tasks that are awaited or cancelled by their owner, and the scheduler of flushes."""

import asyncio
from collections.abc import Callable, Coroutine


class TaskGroup:
    """The tasks of one owner, including those of its child groups.

    Unlike in `asyncio.TaskGroup`, a failure ends its own task only, and goes to the loop's exception handler.
    """

    __slots__ = ("_parent", "_tasks")

    def __init__(self, parent: "TaskGroup | None" = None) -> None:
        self._parent = parent
        self._tasks: dict[asyncio.Task[None], None] = {}  # a dict keeps their order, so that a run can be repeated

    def start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_report)
        owner: TaskGroup | None = self
        while owner is not None:
            owner._keep(task)
            owner = owner._parent

    def cancel(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    async def join(self) -> None:
        """Returns when no task is left, those started meanwhile included."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)


class FlushScheduler:
    """Runs callbacks together, in their order, at the end of this turn of the loop.

    If more than `few` are scheduled by then, `turns` turns later. A callback runs even if its owner has closed
    meanwhile; a failure ends its own callback only.
    """

    __slots__ = ("_calls", "_few", "_turns")

    def __init__(self, turns: int = 0, *, few: int = 0) -> None:
        self._turns = turns
        self._few = few
        self._calls: list[Callable[[], None]] = []

    def schedule(self, callback: Callable[[], None]) -> None:
        if not self._calls:
            asyncio.get_running_loop().call_soon(self._run, self._turns)
        self._calls.append(callback)

    def _run(self, turns: int) -> None:
        if turns and (turns < self._turns or len(self._calls) > self._few):
            asyncio.get_running_loop().call_soon(self._run, turns - 1)
            return
        calls, self._calls = self._calls, []
        for call in calls:
            try:
                call()
            except Exception as failure:
                report(failure)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (failure := task.exception()) is not None:
        report(failure)


def report(failure: BaseException) -> None:
    """Reports a bug to the loop's exception handler, and goes on."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": "unexpected failure in the connection plane", "exception": failure}
    )
