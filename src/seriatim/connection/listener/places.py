"""Places: how many sockets may speak HTTP at once, in total and from one client address.

A socket takes a place when it is accepted, before TLS, and gives it back when it closes or becomes a WebSocket.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from seriatim.connection.observer import ListenerObserver
from seriatim.domain import limits
from seriatim.domain.addresses import Network, is_within, rate_key


class IdleConnection(Protocol):
    """A keep-alive connection between two requests."""

    def evict(self) -> None:
        """Close now: a new socket needs the place."""
        ...


class Place:
    """Of one socket. `refused`: it counts towards no share; its first request is answered with 503."""

    __slots__ = ("_key", "_places", "refused")

    def __init__(self, places: "Places", key: str | None, *, refused: bool) -> None:
        self._places: Places | None = places
        self._key = key
        self.refused = refused

    def release(self) -> None:
        """May be repeated."""
        places, self._places = self._places, None
        if places is not None:
            places.released(self._key, refused=self.refused)


class Places:
    """`per_address_max`: None for no limit by address. `exempt`: proxies, whose sockets carry many clients."""

    def __init__(
        self, observe: ListenerObserver, *, per_address_max: int | None = None, exempt: Sequence[Network] = ()
    ) -> None:
        self.taken = 0
        self._observe = observe
        self._per_address_max = per_address_max
        self._exempt = tuple(exempt)
        self._by_address: dict[str, int] = {}
        self._refused = 0
        self._idle: OrderedDict[IdleConnection, None] = OrderedDict()  # the longest idle one is first

    def take(self, address: str | None) -> Place | None:
        """For a new socket; `address` is None for kinds of sockets without one. None: close it without an answer."""
        key = self._key(address)
        if self.taken >= limits.HTTP_CONNECTIONS_MAX:
            return self._refuse("places")
        if key is not None and self._by_address.get(key, 0) >= (self._per_address_max or 0):
            return self._refuse("address")
        self.taken += 1
        if key is not None:
            self._by_address[key] = self._by_address.get(key, 0) + 1
        if self.taken > limits.HTTP_CONNECTIONS_MAX * limits.EVICTION_RATIO:
            self._evict()
        return Place(self, key, refused=False)

    def released(self, key: str | None, *, refused: bool) -> None:
        if refused:
            self._refused -= 1
            return
        self.taken -= 1
        if key is not None:
            self._by_address[key] -= 1
            if not self._by_address[key]:
                del self._by_address[key]

    def add_idle(self, connection: IdleConnection) -> None:
        self._idle[connection] = None

    def remove_idle(self, connection: IdleConnection) -> None:
        self._idle.pop(connection, None)

    def _key(self, address: str | None) -> str | None:
        """What its share is counted by; None: it has no share."""
        if address is None or self._per_address_max is None or is_within(address, self._exempt):
            return None
        return rate_key(address)

    def _refuse(self, reason: str) -> Place | None:
        self._observe.socket_refused(reason)
        if self._refused >= limits.REFUSED_CONNECTIONS_MAX:
            return None
        self._refused += 1
        return Place(self, None, refused=True)

    def _evict(self) -> None:
        if self._idle:
            connection, _ = self._idle.popitem(last=False)
            self._observe.idle_evicted()
            connection.evict()
