"""`Push` and `PushSubscriber` over Redis' publish and subscribe: one channel per gateway, fire and forget.

A subscription has a connection of its own, mends itself, and says when it was broken: envelopes were lost by then. It
cannot ask there whether its server is still the primary, so it asks by a second connection which server that is.
"""

import asyncio
from collections.abc import Sequence

import hiredis

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown, ServiceUnavailable
from seriatim.engines.redis.client import RedisClient
from seriatim.engines.redis.connection import Command, Link, Reply
from seriatim.engines.redis.dial import Dialer
from seriatim.engines.redis.push_envelope import MalformedEnvelope, decode_envelope, encode_envelope
from seriatim.ports.clock import Clock
from seriatim.ports.push import Push, PushEnvelope, PushReceiver, PushSubscriber


class RedisPush(Push):
    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def publish(self, envelopes: Sequence[tuple[str, PushEnvelope]], *, timeout_s: float) -> Sequence[bool]:
        commands: list[Command] = [
            ("PUBLISH", _channel(gateway_id), encode_envelope(envelope)) for gateway_id, envelope in envelopes
        ]
        replies = await self._client.call(commands, timeout_s=timeout_s)
        return [isinstance(listeners, int) and listeners > 0 for listeners in replies]


class RedisPushSubscriber(PushSubscriber):
    """`malformed_envelopes` counts what arrived and was dropped, because nobody could read it."""

    def __init__(self, dialer: Dialer, clock: Clock) -> None:
        self._dialer = dialer
        self._clock = clock
        self._subscriptions: dict[str, _Subscription] = {}
        self._primary = RedisClient(dialer)
        self._moved_to = ""
        self.malformed_envelopes = 0

    async def subscribe(self, gateway_id: str, receiver: PushReceiver, *, timeout_s: float) -> None:
        """After a failure nothing is left behind, unless it had stood before: then it goes on mending itself."""
        if timeout_s <= 0:
            raise OutcomeUnknown("no time left to subscribe; try again")
        known = self._subscriptions.get(gateway_id)
        if known is not None and known.receiver is not receiver:
            await self.unsubscribe(gateway_id)
            known = None
        if known is None:
            known = self._subscriptions[gateway_id] = _Subscription(self, gateway_id, receiver)
        try:
            async with asyncio.timeout(timeout_s):
                await known.stands.wait()
        except BaseException as error:
            if not known.has_stood:
                await self.unsubscribe(gateway_id)
            if isinstance(error, TimeoutError):
                raise OutcomeUnknown("pushes cannot be subscribed to at the moment; try again") from known.trouble
            raise

    async def unsubscribe(self, gateway_id: str) -> None:
        """The receiver hears nothing more from here on, even if Redis does not learn of it."""
        known = self._subscriptions.pop(gateway_id, None)
        if known is not None:
            await known.end()

    async def close(self) -> None:
        for gateway_id in list(self._subscriptions):
            await self.unsubscribe(gateway_id)
        await self._primary.close()

    # --- for its subscriptions ---

    async def dial(self, subscription: "_Subscription") -> Link:
        return await self._dialer.dial(subscription.lost)

    async def has_moved(self, link: Link) -> bool:
        """Whether the primary is another server than the one of this link. Each of them is moved to once, so that a
        server that names itself differently to each connection does not break subscriptions for ever.
        """
        try:
            answer = await self._primary.ask([("PING",)], timeout_s=limits.REDIS_SILENCE_S)
        except ServiceUnavailable:
            return False
        if answer.server_id in ("", link.server_id, self._moved_to):
            return False
        self._moved_to = answer.server_id
        return True

    def chance(self) -> float:
        return self._clock.random()


class _Subscription:
    """One gateway's channel. `stands` while envelopes arrive; `trouble` is why they last did not."""

    def __init__(self, subscriber: RedisPushSubscriber, gateway_id: str, receiver: PushReceiver) -> None:
        self.receiver = receiver
        self.stands = asyncio.Event()
        self.has_stood = False
        self.trouble: Exception | None = None
        self._subscriber = subscriber
        self._channel = _channel(gateway_id)
        self._link: Link | None = None
        self._is_wanted = True
        self._stood_this_time = False
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keeping = asyncio.create_task(self._keep())

    async def end(self) -> None:
        self._is_wanted = False
        self._keeping.cancel()
        await asyncio.wait([self._keeping])
        if self._link is None:
            return
        if self.stands.is_set():
            # So that nobody publishes into a socket which Redis has not yet found to be closed.
            self._link.send(("UNSUBSCRIBE", self._channel))
            answers = [self._ended, self._link.closed]
            await asyncio.wait(answers, timeout=limits.REDIS_SILENCE_S, return_when=asyncio.FIRST_COMPLETED)
        await self._link.close()

    # --- keeping it up ---

    async def _keep(self) -> None:
        pause_s = limits.REDIS_RESUBSCRIBE_S
        while True:
            self._stood_this_time = False
            try:
                link = self._link = await self._subscriber.dial(self)
                link.listen(self._hear)
                link.send(("SUBSCRIBE", self._channel))
                await self._watch(link)
            except Exception as trouble:  # even a bug of ours must not leave the gateway deaf for good
                self.trouble = trouble
            if self._stood_this_time:
                pause_s = limits.REDIS_RESUBSCRIBE_S
            await asyncio.sleep(pause_s * (0.5 + self._subscriber.chance()))
            pause_s = min(2 * pause_s, limits.REDIS_RESUBSCRIBE_MAX_S)

    async def _watch(self, link: Link) -> None:
        """Until the connection is lost. A peer that vanished without a word says nothing: so it is asked at times."""
        while not link.closed.done():
            await asyncio.wait([link.closed], timeout=limits.REDIS_PING_S)
            if link.silent_s() >= limits.REDIS_DEAF_S:
                link.abort()
            else:
                link.send(("PING",))
                if await self._subscriber.has_moved(link):
                    link.abort()

    # --- what happens to it ---

    def lost(self) -> None:
        if self.stands.is_set():
            self.stands.clear()
            if self._is_wanted:
                self.receiver.interrupted()

    def _hear(self, reply: Reply) -> None:
        match reply:
            case [b"message", _, bytes(data)]:
                self._received(data)
            case [b"subscribe", *_]:
                self._stood()
            case [b"unsubscribe", *_] if not self._ended.done():
                self._ended.set_result(None)
            case hiredis.ReplyError() if self._link is not None:
                self._link.abort()  # the server does not let us listen; perhaps it is not the right one any more

    def _stood(self) -> None:
        self._stood_this_time = True
        self.stands.set()
        if self.has_stood and self._is_wanted:
            self.receiver.resumed()
        self.has_stood = True

    def _received(self, data: bytes) -> None:
        try:
            envelope = decode_envelope(data)
        except MalformedEnvelope:
            self._subscriber.malformed_envelopes += 1
            return
        if self._is_wanted:
            self.receiver.received((envelope,))


def _channel(gateway_id: str) -> str:
    return f"gateway:{gateway_id}:deliver"
