"""Requests that share one sync: what they change, who waits for it, and how each is called back.

Used by the writer only.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from seriatim.domain.errors import STORE_FAILING, STORE_SLOW, OutcomeUnknown, SeriatimError

if TYPE_CHECKING:
    from seriatim.engines.embedded.storage.snapshot import WriteTransaction

Result_contra = TypeVar("Result_contra", contravariant=True)
Done = Callable[[SeriatimError | None], None]


class Waiter(Generic[Result_contra]):
    """A callback that is called once: with a result, or with the error why there is none.

    `applied` is called in any case when the changes are synced. If either callback raises, it is a bug of its owner
    alone: the loop's exception handler gets it, and the other waiters of the group go on.
    """

    __slots__ = ("_callback", "_operation", "applied", "deadline")

    def __init__(
        self,
        callback: Callable[[Result_contra], None],
        operation: str,
        deadline: float,
        applied: Callable[[], None] | None = None,
    ) -> None:
        self._callback: Callable[[Result_contra], None] | None = callback
        self._operation = operation
        self.deadline = deadline
        self.applied = applied

    @property
    def waits(self) -> bool:
        return self._callback is not None

    def call(self, result: Result_contra) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            try:
                callback(result)
            except Exception as failure:
                self._report(failure)

    def apply(self) -> None:
        if self.applied is not None:
            try:
                self.applied()
            except Exception as failure:
                self._report(failure)

    def timed_out(self) -> OutcomeUnknown:
        return OutcomeUnknown(STORE_SLOW, log_reason=f"{self._operation}: no answer from the disk in time")

    def _report(self, failure: Exception) -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"{self._operation}: the callback of a request failed", "exception": failure}
        )


class Group:
    """Requests that share one sync, and what they change.

    `early` was answered already, `deleted` are the rows that go. `starting` are transactions that begin when the group
    begins, after all other requests in it.
    """

    __slots__ = ("changes", "deleted", "early", "requests", "starting", "waiting")

    def __init__(self) -> None:
        self.requests = 0
        self.changes: dict[bytes, bytes | None] = {}
        self.early: dict[bytes, bytes | None] = {}
        self.deleted: list[bytes] = []
        self.starting: list[Waiter[WriteTransaction | SeriatimError]] = []
        self.waiting: list[Waiter[SeriatimError | None]] = []

    def start(self, new_transaction: "Callable[[], WriteTransaction]") -> None:
        """Begins the transactions, one after the other. One whose time is up is not begun."""
        while self.starting:  # a transaction that begins may ask for another one
            waiter = self.starting.pop(0)
            if waiter.waits:
                waiter.call(new_transaction())

    def answer(self) -> None:
        for waiter in self.waiting:
            waiter.apply()
            waiter.call(None)

    def fail(self, reason: str) -> None:
        for waiter in self.still_waiting():
            waiter.call(OutcomeUnknown(STORE_FAILING, log_reason=reason))

    def expire(self, now: float) -> None:
        for waiter in self.still_waiting():
            if waiter.deadline <= now:
                waiter.call(waiter.timed_out())

    def still_waiting(self) -> list[Waiter[SeriatimError]]:
        waiters: list[Waiter[SeriatimError]] = [*self.waiting, *self.starting]
        return [waiter for waiter in waiters if waiter.waits]


def resolves(future: asyncio.Future[None]) -> Done:
    """A callback that ends a caller's await."""

    def done(error: SeriatimError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    return done
