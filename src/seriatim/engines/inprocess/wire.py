"""Between a caller and an engine in memory: request, apply, response. This wire loses and delays nothing.

The simulator passes a faulty one: each leg may be late or lost, and what was applied stays applied even when the caller
has given up by then. Engines apply everything inside `call`, so the wire decides all that can fail.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown

T = TypeVar("T")


class Wire:
    """One process's connection to one kind of store."""

    async def call(
        self,
        operation: str,
        apply: Callable[[], T],
        *,
        timeout_s: float,
        finish: Callable[[], None] | None = None,
    ) -> T:
        """Runs `apply` at the store, once or never, and returns or raises what it does.

        `finish` runs at the store some time after `apply` and before the response leaves, also when the caller gave
        up: the end of a commit that readers may see half-way. A caller whose time is up gets `OutcomeUnknown`.
        """
        if timeout_s <= 0:
            raise OutcomeUnknown("no time was left; retry with the same id", log_reason=f"{operation}: no time left")
        await asyncio.sleep(0)
        try:
            return apply()
        finally:
            if finish is not None:
                finish()

    def hidden_rows(self, count: int) -> Sequence[int]:
        """Which of `count` rows of a commit stay invisible to queries until its `finish`. Here: none."""
        return ()

    def events_kept(self, count: int) -> int:
        """How many of `count` events an append keeps before it fails with `OutcomeUnknown`. Here: all, no failure."""
        return count

    def caller_alive(self) -> bool:
        """Whether the process at this end is alive and running, for decisions at the store. Here: yes."""
        return True

    def deliver(self, receive: Callable[[], None], *, lossy: bool = False) -> None:
        """Hands something to this process from outside: later, in order with what went before; or never, if `lossy`."""
        asyncio.get_running_loop().call_soon(receive)

    def deliver_all(self, receive: Callable[[Sequence[T]], None], items: Sequence[T]) -> None:
        """As `deliver`, for items that may each be lost: in their order, some of them at once or each by itself."""
        for item in items:
            self.deliver(partial(receive, (item,)), lossy=True)


class DirectWire(Wire):
    """Between parts of one process: applied at once. Every `INPROCESS_CALLS_MAX` calls other tasks get a turn."""

    def __init__(self) -> None:
        self._calls = 0
        self._arriving: list[Callable[[], None]] = []

    async def call(
        self,
        operation: str,
        apply: Callable[[], T],
        *,
        timeout_s: float,
        finish: Callable[[], None] | None = None,
    ) -> T:
        self._calls += 1
        if self._calls % limits.INPROCESS_CALLS_MAX == 0 or timeout_s <= 0 or finish is not None:
            return await super().call(operation, apply, timeout_s=timeout_s, finish=finish)
        return apply()

    def deliver(self, receive: Callable[[], None], *, lossy: bool = False) -> None:
        """At the end of this turn of the loop, with all else that arrives in it."""
        if not self._arriving:
            asyncio.get_running_loop().call_soon(self._arrive)
        self._arriving.append(receive)

    def deliver_all(self, receive: Callable[[Sequence[T]], None], items: Sequence[T]) -> None:
        self.deliver(partial(receive, items))

    def _arrive(self) -> None:
        arriving, self._arriving = self._arriving, []
        for receive in arriving:
            try:
                receive()
            except Exception as failure:  # as if each had its own callback: the others still run
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a receiver failed", "exception": failure}
                )
