"""The loop around a call that may be repeated. How long it pauses, and when it gives up, is the caller's."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


async def retry(call: Callable[[], Awaitable[T]], pause_after: Callable[[E], float | None], *errors: type[E]) -> T:
    """Repeats the call while it raises one of `errors`. `pause_after` returns the seconds to wait, None to give up."""
    while True:
        try:
            return await call()
        except errors as error:
            pause_s = pause_after(error)
            if pause_s is None:
                raise
        await asyncio.sleep(pause_s)
