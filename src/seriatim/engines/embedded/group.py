"""Requests that share one sync: what they change, who waits for it, and how they are told.

Used by the writer only.
"""

import asyncio
from collections.abc import Callable

from seriatim.domain.errors import OutcomeUnknown


class Group:
    """Requests that share one sync, and what they change: `built` was answered already, `going` are deleted rows."""

    __slots__ = ("asked", "built", "changes", "going", "waiting")

    def __init__(self) -> None:
        self.asked = 0
        self.changes: dict[bytes, bytes | None] = {}
        self.built: dict[bytes, bytes | None] = {}
        self.going: list[bytes] = []
        self.waiting: list[Waiter] = []

    def answer(self) -> None:
        for waiter in self.waiting:
            if waiter.applied is not None:
                waiter.applied()
            if not waiter.future.done():
                waiter.future.set_result(None)

    def fail(self, message: str) -> None:
        for waiter in self.waiting:
            if not waiter.future.done():
                waiter.future.set_exception(OutcomeUnknown(message))

    def expire(self, now: float) -> None:
        for waiter in self.still_waiting():
            if waiter.deadline <= now:
                waiter.future.set_exception(OutcomeUnknown(f"{waiter.operation}: no answer from the disk in time"))

    def still_waiting(self) -> "list[Waiter]":
        return [waiter for waiter in self.waiting if not waiter.future.done()]


class Waiter:
    __slots__ = ("applied", "deadline", "future", "operation")

    def __init__(
        self, future: asyncio.Future[None], operation: str, deadline: float, applied: Callable[[], None] | None
    ) -> None:
        self.future = future
        self.operation = operation
        self.deadline = deadline
        self.applied = applied
