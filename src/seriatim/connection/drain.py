"""Leaving without losing anyone: every client is told, what was accepted is answered, then the sockets close."""

import asyncio
from collections.abc import Mapping

from seriatim.connection.session.connection import Connection
from seriatim.domain import limits
from seriatim.ports.clock import Clock
from seriatim.protocol.frames import CloseReason


async def drain(connections: Mapping[str, Connection], empty: asyncio.Event, clock: Clock) -> None:
    """Returns when all connections have closed, after DRAIN_S at the latest. `empty` is set when none is left."""
    try:
        async with asyncio.timeout(limits.DRAIN_S):
            await _announce(list(connections.values()), clock)
            await empty.wait()
    except TimeoutError:
        for connection in list(connections.values()):
            connection.close(CloseReason.SERVER_SHUTDOWN)


async def _announce(connections: list[Connection], clock: Clock) -> None:
    for count, connection in enumerate(connections, start=1):
        connection.drain(int(limits.DRAIN_RECONNECT_SPREAD_MS * clock.random()))
        if count % limits.DRAIN_ANNOUNCEMENTS_MAX == 0:
            await asyncio.sleep(0)
