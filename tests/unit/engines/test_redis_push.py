"""Push over a real Redis: what travels, and which calls a receiver gets when its subscription suffers."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown, ServiceUnavailable
from seriatim.domain.message import TEXT, Message
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.redis.address import RedisAddress
from seriatim.engines.redis.dial import RedisDialer
from seriatim.engines.redis.push import RedisPush, RedisPushSubscriber
from seriatim.engines.redis.push_envelope import MalformedEnvelope, decode_envelope, encode_envelope
from seriatim.ports.push import CloseOrder, MessageDelivery, PushEnvelope
from tests.support.real_redis import ask, client_of, until, until_it_answers
from tests.support.tcp_proxy import TcpProxy
from tools.engines.redis import Redis

SOON_S = 5.0
CHANNEL = "gateway:gw_1:deliver"
ORDER = CloseOrder(connection_id="conn_1", reason="duplicate_connection")


class Inbox:
    def __init__(self) -> None:
        self.heard: list[int | str] = []

    def received(self, envelopes: Sequence[PushEnvelope]) -> None:
        self.heard.extend(
            [each.message.sequence if isinstance(each, MessageDelivery) else each.reason for each in envelopes]
        )

    def interrupted(self) -> None:
        self.heard.append("interrupted")

    def resumed(self) -> None:
        self.heard.append("resumed")


# --- what travels ----------------------------------------------------------------------------------------------------


def test_a_delivery_travels_as_the_specification_shows_it() -> None:
    assert json.loads(encode_envelope(delivery(47, prev_sequence=45))) == {
        "type": "deliver",
        "connection_ids": ["conn_1", "conn_2"],
        "message": {
            "type": "message",
            "message_id": "msg_47",
            "chat_id": "chat_1",
            "sequence": 47,
            "sender_id": "user_1",
            "client_message_id": "550e8400-e29b-41d4-a716-446655440000",
            "content": "Hi 🎉",
            "content_type": "text/plain",
            "created_at": "2026-01-30T14:30:00.000Z",
            "prev_sequence": 45,
        },
    }


def test_a_close_order_travels_as_the_specification_shows_it() -> None:
    assert json.loads(encode_envelope(ORDER)) == {
        "type": "close",
        "connection_id": "conn_1",
        "reason": "duplicate_connection",
    }


@pytest.mark.parametrize("prev_sequence", [45, None])
def test_a_delivery_arrives_as_it_was_sent(prev_sequence: int | None) -> None:
    sent = delivery(47, prev_sequence=prev_sequence)
    assert decode_envelope(encode_envelope(sent)) == sent


def test_the_single_connection_of_the_records_is_understood() -> None:
    """Their example has neither `content_type` nor `prev_sequence`, and a newer release may send more."""
    travelling = json.loads(encode_envelope(delivery(47, prev_sequence=None)))
    travelling["connection_id"] = travelling.pop("connection_ids")[0]
    del travelling["message"]["content_type"], travelling["message"]["prev_sequence"]
    travelling["message"]["colour"] = travelling["colour"] = "blue"
    arrived = decode_envelope(json.dumps(travelling).encode())
    assert isinstance(arrived, MessageDelivery)
    assert arrived.connection_ids == ("conn_1",)
    assert arrived.message == delivery(47).message
    assert arrived.prev_sequence is None


MALFORMED = [
    b"",
    b"not JSON",
    b"\xff\xfe",
    b"[]",
    b'{"type":"deliver","connection_ids":["conn_1"]}',
    b'{"type":"close","connection_id":"conn_1"}',
    b'{"type":"dance","connection_id":"conn_1","reason":"joy"}',
    encode_envelope(CloseOrder(connection_id="c", reason="r")).replace(b'"c"', b"1"),
]


@pytest.mark.parametrize("data", [*MALFORMED, b'{"type":"deliver","message":{}}'])
def test_what_is_malformed_is_called_so(data: bytes) -> None:
    with pytest.raises(MalformedEnvelope):
        decode_envelope(data)


def test_a_delivery_without_connections_is_malformed() -> None:
    undeliverable = MessageDelivery(connection_ids=(), message=delivery(1).message, prev_sequence=None)
    with pytest.raises(MalformedEnvelope):
        decode_envelope(encode_envelope(undeliverable))


async def test_malformed_envelopes_are_counted_and_disturb_nothing(redis: Redis) -> None:
    async with client_of(redis.url) as client, subscribed(redis.port) as (subscriber, inbox):
        for data in MALFORMED:
            assert await ask(client, "PUBLISH", CHANNEL, data) == 1
        await RedisPush(client).publish([("gw_1", delivery(1)), ("gw_1", ORDER)], timeout_s=SOON_S)
        await until(lambda: len(inbox.heard) == 2)
        assert inbox.heard == [1, "duplicate_connection"]
        assert subscriber.malformed_envelopes == len(MALFORMED)


# --- what a subscription suffers -------------------------------------------------------------------------------------


async def test_a_killed_redis_interrupts_and_its_return_resumes(redis: Redis) -> None:
    async with client_of(redis.url) as client, subscribed(redis.port) as (_, inbox):
        push = RedisPush(client)
        await push.publish([("gw_1", delivery(1))], timeout_s=SOON_S)
        await until(lambda: inbox.heard == [1])
        for round_ in range(2):
            redis.kill()
            await until(lambda: inbox.heard[-1] == "interrupted")
            with pytest.raises(ServiceUnavailable):
                await push.publish([("gw_1", delivery(99))], timeout_s=SOON_S)
            redis.start()
            await until(lambda: inbox.heard[-1] == "resumed")
            await until_it_answers(client)
            assert list(await push.publish([("gw_1", delivery(2 + round_))], timeout_s=SOON_S)) == [True]
        await until(lambda: inbox.heard[-1] == 3)
        assert inbox.heard == [1, "interrupted", "resumed", 2, "interrupted", "resumed", 3]


async def test_a_wipe_while_subscribed_is_an_interruption(redis: Redis) -> None:
    async with subscribed(redis.port) as (_, inbox):
        redis.wipe()
        await until(lambda: inbox.heard == ["interrupted", "resumed"])


async def test_a_paused_redis_keeps_a_publisher_no_longer_than_its_time_and_loses_no_subscription(redis: Redis) -> None:
    async with client_of(redis.url) as client, subscribed(redis.port) as (_, inbox):
        push = RedisPush(client)
        await client.ping(timeout_s=SOON_S)
        redis.pause()
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            await push.publish([("gw_1", delivery(1))], timeout_s=0.2)
        assert time.monotonic() - began < 1.2
        redis.resume()
        await until(lambda: inbox.heard == [1])  # unknown meant just that: it was on its way


async def test_a_line_that_went_dead_without_a_word_is_noticed(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REDIS_PING_S", 0.05)
    monkeypatch.setattr(limits, "REDIS_SUBSCRIPTION_SILENCE_S", 0.3)
    async with TcpProxy(redis.port) as proxy, subscribed(proxy.port) as (_, inbox):
        proxy.stall()
        await until(lambda: inbox.heard == ["interrupted"])
        proxy.resume()
        await until(lambda: inbox.heard == ["interrupted", "resumed"])


async def test_a_quiet_night_is_no_interruption(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REDIS_PING_S", 0.05)
    monkeypatch.setattr(limits, "REDIS_SUBSCRIPTION_SILENCE_S", 0.5)
    async with TcpProxy(redis.port) as proxy, subscribed(proxy.port) as (_, inbox):
        before = proxy.chunks_sent
        await until(lambda: proxy.chunks_sent - before >= 20)
        assert inbox.heard == []


async def test_a_redis_that_refuses_the_subscription_is_asked_until_it_accepts(redis: Redis) -> None:
    async with client_of(redis.url) as admin:
        await ask(admin, "ACL", "SETUSER", "app", "on", ">secret", "~*", "resetchannels", "+@all")
        subscriber = subscriber_at(f"redis://app:secret@127.0.0.1:{redis.port}")
        subscribing = asyncio.create_task(subscriber.subscribe("gw_1", Inbox(), timeout_s=SOON_S))
        while not await ask(admin, "ACL", "LOG"):  # where refusals are written down
            pass
        await ask(admin, "ACL", "SETUSER", "app", "allchannels")
        await subscribing
        await subscriber.close()


async def test_a_subscription_that_never_stood_leaves_nothing_behind(redis: Redis) -> None:
    redis.pause()
    with pytest.raises(OutcomeUnknown):
        await subscriber_at(redis.url).subscribe("gw_1", Inbox(), timeout_s=0.1)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_end_of_a_subscription_is_sent_to_redis(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the next publisher learns that the gateway is gone. A Redis that answers is not kept waiting for."""
    monkeypatch.setattr(limits, "REDIS_SILENCE_S", 60)
    async with subscribed(redis.port) as (subscriber, _):
        async with asyncio.timeout(SOON_S):
            await subscriber.unsubscribe("gw_1")


async def test_a_subscription_that_fails_to_stand_says_why(redis: Redis) -> None:
    redis.kill()
    subscriber = subscriber_at(redis.url)
    with pytest.raises(OutcomeUnknown) as raised:
        await subscriber.subscribe("gw_1", Inbox(), timeout_s=0.2)
    assert "cannot be reached" in str(raised.value.__cause__)


async def test_subscribing_again_while_broken_waits_for_the_same_subscription(redis: Redis) -> None:
    async with TcpProxy(redis.port) as proxy, subscribed(proxy.port) as (subscriber, inbox):
        proxy.cut()
        await until(lambda: inbox.heard == ["interrupted"])
        with pytest.raises(OutcomeUnknown):
            await subscriber.subscribe("gw_1", inbox, timeout_s=0.05)
        proxy.restore()
        await subscriber.subscribe("gw_1", inbox, timeout_s=SOON_S)
        async with client_of(redis.url) as client:
            assert await ask(client, "PUBLISH", CHANNEL, encode_envelope(delivery(1))) == 1
        await until(lambda: inbox.heard == ["interrupted", "resumed", 1])


async def test_another_receiver_takes_the_place_of_the_first(redis: Redis) -> None:
    async with client_of(redis.url) as client, subscribed(redis.port) as (subscriber, first):
        second = Inbox()
        await subscriber.subscribe("gw_1", second, timeout_s=SOON_S)
        assert list(await RedisPush(client).publish([("gw_1", delivery(1))], timeout_s=SOON_S)) == [True]
        await until(lambda: second.heard == [1])
        assert first.heard == []


async def test_unsubscribing_from_a_dead_redis_does_not_hang_and_says_nothing(redis: Redis) -> None:
    async with subscribed(redis.port) as (subscriber, inbox):
        redis.pause()
        began = time.monotonic()
        await subscriber.unsubscribe("gw_1")
        assert time.monotonic() - began < limits.REDIS_SILENCE_S + 1
        assert inbox.heard == []


@asynccontextmanager
async def subscribed(port: int) -> AsyncIterator[tuple[RedisPushSubscriber, Inbox]]:
    subscriber, inbox = subscriber_at(f"redis://127.0.0.1:{port}"), Inbox()
    await subscriber.subscribe("gw_1", inbox, timeout_s=SOON_S)
    try:
        yield subscriber, inbox
    finally:
        await subscriber.close()


def subscriber_at(url: str) -> RedisPushSubscriber:
    return RedisPushSubscriber(RedisDialer(RedisAddress.parse(url)), SystemClock())


def delivery(sequence: int, *, prev_sequence: int | None = None) -> MessageDelivery:
    message = Message(
        message_id=f"msg_{sequence}",
        chat_id="chat_1",
        sequence=sequence,
        sender_id="user_1",
        client_message_id="550e8400-e29b-41d4-a716-446655440000",
        content="Hi 🎉",
        content_type=TEXT,
        created_at="2026-01-30T14:30:00.000Z",
    )
    return MessageDelivery(connection_ids=("conn_1", "conn_2"), message=message, prev_sequence=prev_sequence)
