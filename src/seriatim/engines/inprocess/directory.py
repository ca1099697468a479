"""`Directory` within one process: connections, two indexes of them and a member cache, as Redis holds them.

`_connections` alone decides whether a connection is live; the sets are indexes
(docs/spec/websocket.md#registry-and-routing).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from seriatim.domain import limits
from seriatim.engines.inprocess.wire import Wire
from seriatim.ports.directory import CachedMembers, Registration

_REGISTRATION_TTL_MS = int(limits.REGISTRATION_TTL_S * 1000)
_MEMBER_CACHE_TTL_MS = int(limits.MEMBER_CACHE_TTL_S * 1000)


class InProcessDirectory:
    """Implements `Directory`. Lifetimes are counted by the clock of the caller."""

    def __init__(self, registry: "InProcessRegistry", wire: Wire, now_ms: Callable[[], int]) -> None:
        self._registry = registry
        self._wire = wire
        self._now_ms = now_ms

    async def register(self, registrations: Sequence[Registration], *, timeout_s: float) -> None:
        given = tuple(registrations)
        await self._wire.call("register", lambda: self._registry.register(given, self._now_ms()), timeout_s=timeout_s)

    async def unregister(self, registration: Registration, *, timeout_s: float) -> None:
        await self._wire.call(
            "unregister", lambda: self._registry.unregister(registration, self._now_ms()), timeout_s=timeout_s
        )

    async def connections(self, user_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, Sequence[Registration]]:
        asked = tuple(user_ids)
        return await self._wire.call(
            "connections", lambda: self._registry.connections(asked, self._now_ms()), timeout_s=timeout_s
        )

    async def cached_members(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, CachedMembers]:
        asked = tuple(chat_ids)
        return await self._wire.call(
            "cached_members", lambda: self._registry.cached(asked, self._now_ms()), timeout_s=timeout_s
        )

    async def cache_members(self, chat_id: str, members: CachedMembers, *, timeout_s: float) -> None:
        await self._wire.call(
            "cache_members", lambda: self._registry.cache(chat_id, members, self._now_ms()), timeout_s=timeout_s
        )

    async def forget_members(self, chat_id: str, *, timeout_s: float) -> None:
        await self._wire.call("forget_members", partial(self._registry.forget, chat_id), timeout_s=timeout_s)


class InProcessRegistry:
    """The data of all callers, as a server would hold them. The simulator calls `wipe`."""

    def __init__(self) -> None:
        self._connections: dict[str, tuple[Registration, int]] = {}
        self._user_sets: dict[str, _ExpiringSet] = {}
        self._gateway_sets: dict[str, _ExpiringSet] = {}
        self._ended: dict[str, int] = {}  # connections that were unregistered, and until when that is kept
        self._members: dict[str, tuple[CachedMembers, int]] = {}

    def wipe(self) -> None:
        """Loses everything at once, as a store without persistence does."""
        self._connections.clear()
        self._user_sets.clear()
        self._gateway_sets.clear()
        self._ended.clear()
        self._members.clear()

    def register(self, registrations: Sequence[Registration], now_ms: int) -> None:
        for each in registrations:
            if now_ms < self._ended.get(each.connection_id, 0):
                continue
            self._connections[each.connection_id] = (each, now_ms + _REGISTRATION_TTL_MS)
            _add(self._user_sets, each.user_id, each.connection_id, now_ms)
            _add(self._gateway_sets, each.gateway_id, each.connection_id, now_ms)

    def unregister(self, registration: Registration, now_ms: int) -> None:
        _drop_expired(self._ended, now_ms)
        self._ended[registration.connection_id] = now_ms + _REGISTRATION_TTL_MS
        self._connections.pop(registration.connection_id, None)
        _discard(self._user_sets, registration.user_id, registration.connection_id)
        _discard(self._gateway_sets, registration.gateway_id, registration.connection_id)

    def connections(self, user_ids: Sequence[str], now_ms: int) -> Mapping[str, Sequence[Registration]]:
        found: dict[str, Sequence[Registration]] = {}
        sets = self._user_sets
        for user_id in user_ids:
            known = sets.get(user_id)
            if known is not None:
                live = known.live if now_ms < known.live_until_ms else self._live(sets, user_id, now_ms)
                if live:
                    found[user_id] = live
        return found

    def gateway_connections(self, gateway_id: str, now_ms: int) -> Sequence[Registration]:
        """For operators: the connections of a gateway, also of one that died."""
        return self._live(self._gateway_sets, gateway_id, now_ms)

    def listed(self, user_id: str) -> Sequence[str]:
        """For operators: the ids in a user's set, dead or alive."""
        known = self._user_sets.get(user_id)
        return () if known is None else tuple(known.ids)

    def cached(self, chat_ids: Sequence[str], now_ms: int) -> Mapping[str, CachedMembers]:
        found: dict[str, CachedMembers] = {}
        for chat_id in chat_ids:
            kept = self._members.get(chat_id)
            if kept is not None and now_ms < kept[1]:
                found[chat_id] = kept[0]
        return found

    def cache(self, chat_id: str, members: CachedMembers, now_ms: int) -> None:
        self._members.pop(chat_id, None)
        if members.user_ids:
            self._members[chat_id] = (members, now_ms + _MEMBER_CACHE_TTL_MS)
        self._drop_long_expired(now_ms)

    def forget(self, chat_id: str) -> None:
        self._members.pop(chat_id, None)

    def _drop_long_expired(self, now_ms: int) -> None:
        """Oldest first, so the cache holds the chats of the last minutes and no more, by whichever clock is slowest."""
        while self._members:
            oldest = next(iter(self._members))
            if self._members[oldest][1] + _MEMBER_CACHE_TTL_MS > now_ms:
                return
            del self._members[oldest]

    def _live(self, sets: dict[str, "_ExpiringSet"], name: str, now_ms: int) -> Sequence[Registration]:
        known = sets.get(name)
        if known is None:
            return ()
        if now_ms < known.live_until_ms:
            return known.live
        if now_ms >= known.expires_ms:
            del sets[name]
            return ()
        live: list[Registration] = []
        first_ms = known.expires_ms
        for connection_id in list(known.ids):
            registration, expires_ms = self._connections.get(connection_id, (None, 0))
            if registration is not None and now_ms < expires_ms:
                live.append(registration)
                first_ms = min(first_ms, expires_ms)
            else:
                # Another device of the user renews the set, so expired ids are removed only here.
                self._connections.pop(connection_id, None)
                _discard(sets, name, connection_id)
        known.live, known.live_until_ms = tuple(live), first_ms
        return known.live


class _ExpiringSet:
    """A set with one lifetime for all its ids, renewed by each addition. A dict keeps its order reproducible.

    `live`: the registrations of the last read, because every message reads them; valid until `live_until_ms`.
    """

    __slots__ = ("expires_ms", "ids", "live", "live_until_ms")

    def __init__(self) -> None:
        self.ids: dict[str, None] = {}
        self.expires_ms = 0
        self.live: tuple[Registration, ...] = ()
        self.live_until_ms = 0


def _drop_expired(ended: dict[str, int], now_ms: int) -> None:
    """Oldest first. Clocks that disagree keep an entry a little longer."""
    while ended and ended[oldest := next(iter(ended))] <= now_ms:
        del ended[oldest]


def _add(sets: dict[str, _ExpiringSet], name: str, connection_id: str, now_ms: int) -> None:
    if name not in sets or now_ms >= sets[name].expires_ms:
        sets[name] = _ExpiringSet()
    sets[name].ids[connection_id] = None
    sets[name].expires_ms = now_ms + _REGISTRATION_TTL_MS
    sets[name].live_until_ms = 0


def _discard(sets: dict[str, _ExpiringSet], name: str, connection_id: str) -> None:
    """Like Redis: a set without members is not there."""
    if name in sets:
        sets[name].ids.pop(connection_id, None)
        sets[name].live_until_ms = 0
        if not sets[name].ids:
            del sets[name]
