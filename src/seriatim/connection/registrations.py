"""Which connections of this gateway can be found: registered whole at every heartbeat, because the directory forgets.

Renewing a lifetime alone would do nothing after a loss: the sockets would live on and hear nothing.
"""

from collections.abc import Sequence

from seriatim.connection.observer import GatewayObserver
from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError
from seriatim.ports.directory import Directory, Registration
from seriatim.ports.push import CloseOrder, Push
from seriatim.protocol.frames import CloseReason


class Registrations:
    def __init__(self, directory: Directory, push: Push, observe: GatewayObserver) -> None:
        self._directory = directory
        self._push = push
        self._observe = observe
        self._ours: dict[str, Registration] = {}

    async def add(self, registration: Registration) -> None:
        """Returns once fanout can find it. Raises when that cannot be promised."""
        await self._directory.register((registration,), timeout_s=limits.REGISTRATION_TIMEOUT_S)
        self._ours[registration.connection_id] = registration

    async def remove(self, registration: Registration) -> None:
        """Best effort: what cannot be removed expires."""
        self._ours.pop(registration.connection_id, None)
        try:
            await self._directory.unregister(registration, timeout_s=limits.REGISTRATION_TIMEOUT_S)
        except SeriatimError:
            self._observe.directory_failed("unregister")

    async def renew(self) -> None:
        """Registers every connection again. A failure closes nobody: the next heartbeat tries again."""
        ours = list(self._ours.values())
        for first in range(0, len(ours), limits.REGISTRATION_BATCH_MAX):
            # Whoever left since the list was made must not be registered again.
            batch = [
                each for each in ours[first : first + limits.REGISTRATION_BATCH_MAX] if each.connection_id in self._ours
            ]
            if not batch:
                continue
            try:
                await self._directory.register(batch, timeout_s=limits.REGISTRATION_TIMEOUT_S)
            except SeriatimError:
                self._observe.directory_failed("register")

    async def twins(self, registration: Registration) -> Sequence[Registration]:
        """The other connections of the same user and device."""
        try:
            found = await self._directory.connections((registration.user_id,), timeout_s=limits.REGISTRATION_TIMEOUT_S)
        except SeriatimError:
            self._observe.directory_failed("connections")
            return ()
        return [
            other
            for other in found.get(registration.user_id, ())
            if other.device_id == registration.device_id and other.connection_id != registration.connection_id
        ]

    async def close_elsewhere(self, twins: Sequence[Registration]) -> None:
        orders = [
            (
                twin.gateway_id,
                CloseOrder(connection_id=twin.connection_id, reason=CloseReason.DUPLICATE_CONNECTION.value),
            )
            for twin in twins
        ]
        try:
            await self._push.publish(orders, timeout_s=limits.REGISTRATION_TIMEOUT_S)
        except SeriatimError:
            self._observe.directory_failed("publish")


def is_older(one: Registration, other: Registration) -> bool:
    return (one.connected_at, one.connection_id) < (other.connected_at, other.connection_id)
