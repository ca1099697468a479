"""`Push` and `PushSubscriber` over Redis' publish and subscribe: one channel per gateway, fire and forget.

A subscription has its own connection, reconnects by itself, and reports interruptions, in which envelopes are lost.
A connection that subscribes cannot ask for its role, so a second connection asks which server is the primary.
"""

import asyncio
from collections.abc import Sequence

import hiredis

from seriatim.domain import limits
from seriatim.domain.backoff import backoff_s
from seriatim.domain.errors import OutcomeUnknown, ServiceUnavailable
from seriatim.engines.redis.client import RedisClient
from seriatim.engines.redis.connection import Command, RedisConnection, Reply
from seriatim.engines.redis.dial import RedisDialer
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
    """`malformed_envelopes` counts envelopes that were dropped because they could not be decoded."""

    def __init__(self, dialer: RedisDialer, clock: Clock) -> None:
        self._dialer = dialer
        self._clock = clock
        self._subscriptions: dict[str, _Subscription] = {}
        self._primary = RedisClient(dialer)
        self._moved_to = ""
        self.malformed_envelopes = 0

    async def subscribe(self, gateway_id: str, receiver: PushReceiver, *, timeout_s: float) -> None:
        """After a failure nothing is left behind, unless it was active before: then it goes on reconnecting."""
        if timeout_s <= 0:
            raise OutcomeUnknown("no time left to subscribe; try again")
        subscription = self._subscriptions.get(gateway_id)
        if subscription is not None and subscription.receiver is not receiver:
            await self.unsubscribe(gateway_id)
            subscription = None
        if subscription is None:
            subscription = self._subscriptions[gateway_id] = _Subscription(self, gateway_id, receiver)
        try:
            async with asyncio.timeout(timeout_s):
                await subscription.active.wait()
        except BaseException as error:
            if not subscription.was_active:
                await self.unsubscribe(gateway_id)
            if isinstance(error, TimeoutError):
                raise OutcomeUnknown(
                    "pushes cannot be subscribed to at the moment; try again",
                    log_reason=f"Redis takes no subscription: {subscription.last_error}",
                ) from subscription.last_error
            raise

    async def unsubscribe(self, gateway_id: str) -> None:
        """The receiver is not called any more from here on, even if Redis cannot be reached."""
        subscription = self._subscriptions.pop(gateway_id, None)
        if subscription is not None:
            await subscription.end()

    async def close(self) -> None:
        for gateway_id in list(self._subscriptions):
            await self.unsubscribe(gateway_id)
        await self._primary.close()

    # --- for its subscriptions ---

    async def dial(self, subscription: "_Subscription") -> RedisConnection:
        return await self._dialer.dial(subscription.on_lost)

    async def has_moved(self, connection: RedisConnection) -> bool:
        """Whether the primary is another server than the one of this connection. Each server is moved to once, so that
        one that gives every connection another id does not break subscriptions for ever.
        """
        try:
            answer = await self._primary.call_server([("PING",)], timeout_s=limits.REDIS_SILENCE_S)
        except ServiceUnavailable:
            return False
        if answer.server_id in ("", connection.server_id, self._moved_to):
            return False
        self._moved_to = answer.server_id
        return True

    def pause_s(self, failures: int) -> float:
        first_s, max_s = limits.REDIS_RESUBSCRIBE_S, limits.REDIS_RESUBSCRIBE_MAX_S
        return backoff_s(failures, first_s=first_s, max_s=max_s, random=self._clock.random)


class _Subscription:
    """One gateway's channel. `active` while envelopes arrive; `last_error` is why they last did not."""

    def __init__(self, subscriber: RedisPushSubscriber, gateway_id: str, receiver: PushReceiver) -> None:
        self.receiver = receiver
        self.active = asyncio.Event()
        self.was_active = False
        self.last_error: Exception | None = None
        self._subscriber = subscriber
        self._channel = _channel(gateway_id)
        self._connection: RedisConnection | None = None
        self._is_wanted = True
        self._became_active = False
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run())

    async def end(self) -> None:
        self._is_wanted = False
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._connection is None:
            return
        if self.active.is_set():
            # So that Redis does not count a subscriber whose closed socket it has not yet noticed.
            self._connection.send(("UNSUBSCRIBE", self._channel))
            answers = [self._ended, self._connection.closed]
            await asyncio.wait(answers, timeout=limits.REDIS_SILENCE_S, return_when=asyncio.FIRST_COMPLETED)
        await self._connection.close()

    # --- its connection ---

    async def _run(self) -> None:
        failures = 0
        while True:
            self._became_active = False
            try:
                connection = self._connection = await self._subscriber.dial(self)
                connection.listen(self._handle_reply)
                connection.send(("SUBSCRIBE", self._channel))
                await self._ping(connection)
            except Exception as error:  # even a bug must not leave the gateway without pushes
                self.last_error = error
            if self._became_active:
                failures = 0
            await asyncio.sleep(self._subscriber.pause_s(failures))
            failures += 1

    async def _ping(self, connection: RedisConnection) -> None:
        """Until the connection is lost. A peer that failed silently is noticed by unanswered pings."""
        while not connection.closed.done():
            await asyncio.wait([connection.closed], timeout=limits.REDIS_PING_S)
            if connection.silent_s() >= limits.REDIS_SUBSCRIPTION_SILENCE_S:
                connection.abort()
            else:
                connection.send(("PING",))
                if await self._subscriber.has_moved(connection):
                    connection.abort()

    # --- callbacks ---

    def on_lost(self) -> None:
        if self.active.is_set():
            self.active.clear()
            if self._is_wanted:
                self.receiver.interrupted()

    def _handle_reply(self, reply: Reply) -> None:
        match reply:
            case [b"message", _, bytes(data)]:
                self._received(data)
            case [b"subscribe", *_]:
                self._subscribed()
            case [b"unsubscribe", *_] if not self._ended.done():
                self._ended.set_result(None)
            case hiredis.ReplyError() if self._connection is not None:
                self._connection.abort()  # the server refuses the subscription; it may not be the primary any more

    def _subscribed(self) -> None:
        self._became_active = True
        self.active.set()
        if self.was_active and self._is_wanted:
            self.receiver.resumed()
        self.was_active = True

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
