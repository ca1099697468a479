"""Checks once a minute for every open connection whether its session was revoked.

See docs/spec/websocket.md#liveness-expiry-and-age.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from itertools import islice

from seriatim.connection.observer import ListenerObserver
from seriatim.connection.session.connection import Connection
from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError, Unauthorized
from seriatim.ports.clock import Clock
from seriatim.ports.tokens import Authenticator
from seriatim.protocol.frames import CloseReason


class RevocationRecheck:
    """One loop for all `connections` of a gateway, REVOCATION_CHECKS_MAX checks at a time."""

    def __init__(
        self,
        connections: Mapping[str, Connection],
        authenticator: Authenticator,
        clock: Clock,
        observe: ListenerObserver,
    ) -> None:
        self._connections = connections
        self._authenticator = authenticator
        self._clock = clock
        self._observe = observe
        self._due: OrderedDict[str, float] = (
            OrderedDict()
        )  # by connection id, earliest first but for REVOCATION_SPREAD_RATIO

    def watch(self, connection: Connection) -> None:
        """Its session was just found valid; the next check is due within REVOCATION_RECHECK_S."""
        early = limits.REVOCATION_SPREAD_RATIO * self._clock.random()
        due = self._clock.monotonic() + limits.REVOCATION_RECHECK_S * (1 - early) - limits.REVOCATION_TICK_S
        self._due[connection.connection_id] = due

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(limits.REVOCATION_TICK_S)
            while batch := self._take_due():
                await asyncio.gather(*(self._check(connection) for connection in batch))

    def _take_due(self) -> list[Connection]:
        """The connections that are due. Those behind one that is not due are late by the spread at most."""
        now, batch = self._clock.monotonic(), []
        for connection_id, due in list(islice(self._due.items(), limits.REVOCATION_CHECKS_MAX)):
            if due > now:
                break
            del self._due[connection_id]
            if (connection := self._connections.get(connection_id)) is not None:
                batch.append(connection)
        return batch

    async def _check(self, connection: Connection) -> None:
        claims = connection.identity.claims
        if claims is None:
            return
        try:
            await self._authenticator.check_revoked(claims, timeout_s=limits.HANDSHAKE_TIMEOUT_S)
        except Unauthorized:
            connection.close(CloseReason.SESSION_REVOKED)
        except SeriatimError as error:
            self._observe.revocation_unknown(error)  # the connection stays open: the next round checks again
            self.watch(connection)
        else:
            self.watch(connection)
