"""Directories and push engines that break one promise each. The contract is worth something only if it rejects them."""

import asyncio
from collections.abc import Mapping, Sequence

from seriatim.engines.inprocess.directory import InProcessDirectory, InProcessRegistry
from seriatim.engines.inprocess.push import InProcessChannels, InProcessPushSubscriber, Subscription
from seriatim.engines.inprocess.wire import Wire
from seriatim.ports.directory import CachedMembers, Directory, Registration
from seriatim.ports.push import PushEnvelope, PushReceiver, PushSubscriber
from tests.contract.event_engines import MemoryDirectoryEngine, MemoryPushEngine

# --- directory -----------------------------------------------------------------------------------------------------


class _Registering(MemoryDirectoryEngine):
    kind: type[InProcessRegistry]

    def __init__(self) -> None:
        super().__init__()
        self.registry = self.kind()


class FindingTheExpired(_Registering):
    class kind(InProcessRegistry):
        def _live(self, sets: object, name: str, now_ms: int) -> Sequence[Registration]:
            return [each for each, _ in self._connections.values() if name in (each.user_id, each.gateway_id)]


class RevivingSiblings(_Registering):
    """The set decides who lives, and any device of the user keeps it alive."""

    class kind(InProcessRegistry):
        def register(self, registrations: Sequence[Registration], now_ms: int) -> None:
            super().register(registrations, now_ms)
            for each in registrations:
                siblings = [self._connections[name][0] for name in self.listed(each.user_id)]
                super().register(siblings, now_ms)


class KeepingTheDeadListed(_Registering):
    class kind(InProcessRegistry):
        def connections(self, user_ids: Sequence[str], now_ms: int) -> dict[str, Sequence[Registration]]:
            before = {user_id: dict(self._user_sets[user_id].ids) for user_id in user_ids if user_id in self._user_sets}
            found = dict(super().connections(user_ids, now_ms))
            for user_id, ids in before.items():
                if user_id in self._user_sets:
                    self._user_sets[user_id].ids = ids
            return found


class OnlyExpiring(_Registering):
    """A heartbeat prolongs what is there, and rebuilds nothing."""

    class kind(InProcessRegistry):
        def __init__(self) -> None:
            super().__init__()
            self._known: dict[str, None] = {}

        def register(self, registrations: Sequence[Registration], now_ms: int) -> None:
            for each in registrations:
                if each.connection_id not in self._known or each.connection_id in self._connections:
                    self._known[each.connection_id] = None
                    super().register([each], now_ms)


class DroppingTheUser(_Registering):
    """Unregistering one connection deletes the whole set of its user."""

    class kind(InProcessRegistry):
        def unregister(self, registration: Registration, now_ms: int) -> None:
            self._user_sets.pop(registration.user_id, None)


class RevivingTheUnregistered(_Registering):
    """A renewal that crosses the end of its connection is applied last."""

    class kind(InProcessRegistry):
        def unregister(self, registration: Registration, now_ms: int) -> None:
            super().unregister(registration, now_ms)
            self._ended.clear()


class KeepingTheOldVersion(_Registering):
    class kind(InProcessRegistry):
        def cache(self, chat_id: str, members: CachedMembers, now_ms: int) -> None:
            old = self.cached([chat_id], now_ms).get(chat_id)
            super().cache(chat_id, CachedMembers(old.version if old else members.version, members.user_ids), now_ms)


class AddingToTheOldList(_Registering):
    class kind(InProcessRegistry):
        def cache(self, chat_id: str, members: CachedMembers, now_ms: int) -> None:
            old = self.cached([chat_id], now_ms).get(chat_id)
            both = dict.fromkeys((*(old.user_ids if old else ()), *members.user_ids))
            super().cache(chat_id, CachedMembers(members.version, tuple(both)), now_ms)


class CachingForEver(_Registering):
    class kind(InProcessRegistry):
        def cached(self, chat_ids: Sequence[str], now_ms: int) -> Mapping[str, CachedMembers]:
            return super().cached(chat_ids, 0)


class CachingNobody(_Registering):
    class kind(InProcessRegistry):
        def cache(self, chat_id: str, members: CachedMembers, now_ms: int) -> None:
            self._members[chat_id] = (members, now_ms + 300_000)


class ForgettingNothing(MemoryDirectoryEngine):
    class _Directory(InProcessDirectory):
        async def forget_members(self, chat_id: str, *, timeout_s: float) -> None:
            return

    def directory(self) -> Directory:
        return self._Directory(self.registry, Wire(), self.now_ms)


# --- push ----------------------------------------------------------------------------------------------------------


class DroppingSilently(MemoryPushEngine):
    """Envelopes are lost and no receiver is notified."""

    async def interrupt(self, gateway_id: str) -> None:
        self.channels._subscriptions[gateway_id].broken = True

    async def restore(self, gateway_id: str) -> None:
        self.channels._subscriptions[gateway_id].broken = False


class _Publishing(MemoryPushEngine):
    kind: type[InProcessChannels]

    def __init__(self) -> None:
        super().__init__()
        self.channels = self.kind()


class PushingBackwards(_Publishing):
    class kind(InProcessChannels):
        def publish(self, envelopes: Sequence[tuple[str, PushEnvelope]]) -> Sequence[bool]:
            return super().publish(envelopes[::-1])[::-1]


class PushingTwice(_Publishing):
    class kind(InProcessChannels):
        def publish(self, envelopes: Sequence[tuple[str, PushEnvelope]]) -> Sequence[bool]:
            return super().publish([each for each in envelopes for _ in range(2)])[::2]


class HearingGhosts(_Publishing):
    """Claims that someone listened."""

    class kind(InProcessChannels):
        def publish(self, envelopes: Sequence[tuple[str, PushEnvelope]]) -> Sequence[bool]:
            super().publish(envelopes)
            return [True for _ in envelopes]


class StayingSubscribed(_Publishing):
    class kind(InProcessChannels):
        def unsubscribe(self, gateway_id: str, subscription: Subscription) -> None:
            return


class SubscribingLater(MemoryPushEngine):
    class _Subscriber(InProcessPushSubscriber):
        async def subscribe(self, gateway_id: str, receiver: PushReceiver, *, timeout_s: float) -> None:
            later = Subscription(receiver, Wire())
            asyncio.get_running_loop().call_later(0.001, self._channels.subscribe, gateway_id, later)

    def subscriber(self) -> PushSubscriber:
        return self._Subscriber(self.channels, Wire())
