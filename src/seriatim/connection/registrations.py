"""The registrations of this gateway's connections: written again in full at every heartbeat.

To extend lifetimes only would not be enough: if the directory has lost an entry, its socket would stay open and get no
pushes.
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
        self._registered: dict[str, Registration] = {}

    async def add(self, registration: Registration) -> None:
        """Returns once fanout can find the connection. Raises when it may not be found."""
        await self._directory.register((registration,), timeout_s=limits.REGISTRATION_TIMEOUT_S)
        self._registered[registration.connection_id] = registration

    async def remove(self, registration: Registration) -> None:
        """Best effort: a registration that cannot be removed expires."""
        self._registered.pop(registration.connection_id, None)
        try:
            await self._directory.unregister(registration, timeout_s=limits.REGISTRATION_TIMEOUT_S)
        except SeriatimError as error:
            self._observe.directory_failed("unregister", error)

    async def renew(self) -> None:
        """Registers every connection again. A failure closes no connection: the next heartbeat tries again."""
        registrations = list(self._registered.values())
        for first in range(0, len(registrations), limits.REGISTRATION_BATCH_MAX):
            # Connections that closed since the list was made must not be registered again.
            batch = [
                each
                for each in registrations[first : first + limits.REGISTRATION_BATCH_MAX]
                if each.connection_id in self._registered
            ]
            if not batch:
                continue
            try:
                await self._directory.register(batch, timeout_s=limits.REGISTRATION_TIMEOUT_S)
            except SeriatimError as error:
                self._observe.directory_failed("register", error)

    async def same_device(self, registration: Registration) -> Sequence[Registration]:
        """The other connections of the same user and device."""
        try:
            found = await self._directory.connections((registration.user_id,), timeout_s=limits.REGISTRATION_TIMEOUT_S)
        except SeriatimError as error:
            self._observe.directory_failed("connections", error)
            return ()
        return [
            other
            for other in found.get(registration.user_id, ())
            if other.device_id == registration.device_id and other.connection_id != registration.connection_id
        ]

    async def close_elsewhere(self, same_device: Sequence[Registration]) -> None:
        orders = [
            (
                other.gateway_id,
                CloseOrder(connection_id=other.connection_id, reason=CloseReason.DUPLICATE_CONNECTION.value),
            )
            for other in same_device
        ]
        try:
            await self._push.publish(orders, timeout_s=limits.REGISTRATION_TIMEOUT_S)
        except SeriatimError as error:
            self._observe.directory_failed("publish", error)


def is_older(one: Registration, other: Registration) -> bool:
    return (one.connected_at, one.connection_id) < (other.connected_at, other.connection_id)
