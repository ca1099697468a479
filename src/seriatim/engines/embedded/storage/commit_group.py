"""Requests that share one sync: what they change, who waits for it, and how they are told.

Used by the writer only.
"""

import asyncio
from collections.abc import Callable

from seriatim.domain.errors import OutcomeUnknown, SeriatimError

Told = Callable[[SeriatimError | None], None]


class Waiter:
    """Is told once: None when all is synced, or why nobody can know. `applied` is called in any case when it is.

    If either raises, it is a bug of this waiter alone: the loop's handler gets it, and the others of the group go on.
    """

    __slots__ = ("_tell", "applied", "deadline", "operation")

    def __init__(self, tell: Told, operation: str, deadline: float, applied: Callable[[], None] | None) -> None:
        self._tell: Told | None = tell
        self.operation = operation
        self.deadline = deadline
        self.applied = applied

    @property
    def waits(self) -> bool:
        return self._tell is not None

    def tell(self, error: SeriatimError | None) -> None:
        tell, self._tell = self._tell, None
        if tell is not None:
            try:
                tell(error)
            except Exception as failure:
                self._report(failure)

    def apply(self) -> None:
        if self.applied is not None:
            try:
                self.applied()
            except Exception as failure:
                self._report(failure)

    def _report(self, failure: Exception) -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"{self.operation}: the callback of a request failed", "exception": failure}
        )


class Group:
    """Requests that share one sync, and what they change: `built` was answered already, `going` are deleted rows.

    `steps` are decided when the group begins, after all else in it.
    """

    __slots__ = ("asked", "built", "changes", "going", "steps", "waiting")

    def __init__(self) -> None:
        self.asked = 0
        self.changes: dict[bytes, bytes | None] = {}
        self.built: dict[bytes, bytes | None] = {}
        self.going: list[bytes] = []
        self.steps: list[tuple[Waiter, Callable[[], SeriatimError | None]]] = []
        self.waiting: list[Waiter] = []

    def decide_steps(self) -> None:
        """What was given up meanwhile is not begun; what fails is told with the others, and has changed nothing."""
        while self.steps:  # deciding may make somebody ask again
            waiter, decide = self.steps.pop(0)
            if waiter.waits:
                self.waiting.append(waiter if (refusal := decide()) is None else _refused(waiter, refusal))

    def answer(self) -> None:
        for waiter in self.waiting:
            waiter.apply()
            waiter.tell(None)

    def fail(self, message: str) -> None:
        for waiter in self.everybody():
            waiter.tell(OutcomeUnknown(message))

    def expire(self, now: float) -> None:
        for waiter in self.everybody():
            if waiter.deadline <= now:
                waiter.tell(OutcomeUnknown(f"{waiter.operation}: no answer from the disk in time"))

    def still_waiting(self) -> list[Waiter]:
        return [waiter for waiter in self.everybody() if waiter.waits]

    def everybody(self) -> list[Waiter]:
        return [*self.waiting, *(waiter for waiter, _ in self.steps)]


def _refused(waiter: Waiter, refusal: SeriatimError) -> Waiter:
    return Waiter(lambda error: waiter.tell(error or refusal), waiter.operation, waiter.deadline, None)


def told(future: asyncio.Future[None]) -> Told:
    """Tells somebody who awaits."""

    def tell(error: SeriatimError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    return tell
