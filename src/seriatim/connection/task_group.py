"""The tasks somebody started and has not forgotten: they end on their own, or are ended and awaited."""

import asyncio
from collections.abc import Callable, Coroutine


class TaskGroup:
    """An owner of tasks; those of its children are its own too.

    A failure nobody expected goes to the loop's exception handler and hurts only its own task.
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
    """Calls back once this turn of the loop is over, or `turns` turns later if more than `few` have asked in it: all
    who asked meanwhile, in that order.

    Who asks may be over by then, and is called all the same. A failure hurts only its own call.
    """

    __slots__ = ("_calls", "_few", "_turns")

    def __init__(self, turns: int = 0, *, few: int = 0) -> None:
        self._turns = turns
        self._few = few
        self._calls: list[Callable[[], None]] = []

    def call(self, callback: Callable[[], None]) -> None:
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
    """A bug of ours: seen by whoever runs the loop, survived by everybody else."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": "unexpected failure in the connection plane", "exception": failure}
    )
