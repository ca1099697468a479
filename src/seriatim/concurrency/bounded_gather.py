"""Runs the same coroutine for many items, a bounded number at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def bounded_gather(work: Callable[[T], Awaitable[R]], items: Sequence[T], *, at_once: int) -> list[R]:
    """The results in the order of the items. The first failure ends the rest, and is raised as it is."""
    results: dict[int, R] = {}
    waiting = iter(enumerate(items))

    async def worker() -> None:
        for index, item in waiting:
            results[index] = await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(items))):
                group.create_task(worker())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [results[index] for index in range(len(items))]
