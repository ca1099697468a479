"""A few calls at once. The first failure ends the rest, and is raised as it is."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def together(work: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
    """The results in the order of the items."""

    async def one(item: T) -> R:
        return await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in items]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
