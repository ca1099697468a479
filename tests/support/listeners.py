"""Ends a listener together with all that it accepted, so that no socket outlives the event loop of its test."""

import asyncio
from collections.abc import Collection

# What was accepted in the last moment needs so many turns of the loop until its handler has begun: one for the task
# that accepts, one for `connection_made`, one for the handler; the others are to spare.
TURNS = 8


async def end(listener: asyncio.Server, accepted: Collection[asyncio.StreamWriter]) -> None:
    """`accepted` may still grow at first: handlers add what they were given."""
    listener.close()
    for _ in range(TURNS):
        await asyncio.sleep(0)
    ended = list(accepted)
    for writer in ended:
        writer.transport.abort()
    await asyncio.gather(*(writer.wait_closed() for writer in ended), return_exceptions=True)
    await listener.wait_closed()
