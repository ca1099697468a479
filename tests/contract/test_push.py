"""The contract of push. Each promise quotes its sentence of ports/push.py."""

from collections.abc import Awaitable, Callable, Sequence

import pytest

from seriatim.domain.errors import OutcomeUnknown
from seriatim.domain.message import TEXT, Message
from seriatim.engines.inprocess.push import InProcessPushSubscriber
from seriatim.engines.inprocess.wire import Wire
from seriatim.ports import push as port
from seriatim.ports.push import CloseOrder, MessageDelivery, PushEnvelope
from tests.contract.event_engines import PUSHES, SOON_S, MemoryPushEngine, PushEngine, Suite, keep, quiet, until

SUITE: Suite[PushEngine] = Suite(port)


class Inbox:
    """A receiver that records its calls: sequences, close orders, and the state of the subscription."""

    def __init__(self) -> None:
        self.heard: list[int | str] = []
        self.envelopes: list[PushEnvelope] = []

    def received(self, envelopes: Sequence[PushEnvelope]) -> None:
        self.envelopes.extend(envelopes)
        self.heard.extend(
            [each.message.sequence if isinstance(each, MessageDelivery) else each.reason for each in envelopes]
        )

    def interrupted(self) -> None:
        self.heard.append("interrupted")

    def resumed(self) -> None:
        self.heard.append("resumed")


@SUITE.promise
async def an_envelope_published_after_subscribe_returned_arrives_whole(engine: PushEngine) -> None:
    """Returns once envelopes published from now on reach the receiver."""
    inbox = await subscribed(engine, "gw_1")
    order = CloseOrder(connection_id="conn_1", reason="duplicate_connection")
    assert list(await engine.push().publish([("gw_1", delivery(1)), ("gw_1", order)], timeout_s=SOON_S)) == [True, True]
    await until(engine, lambda: len(inbox.envelopes) == 2, "both envelopes")
    assert inbox.envelopes == [delivery(1), order]


@SUITE.promise
async def envelopes_arrive_once_and_in_the_order_of_their_publication(engine: PushEngine) -> None:
    """Sends each envelope to its gateway's channel, in order. An envelope arrives once or not at all.

    In the order in which they were published, some of them at once or each by itself.
    """
    inbox = await subscribed(engine, "gw_1")
    push = engine.push()
    for start in range(0, 9, 3):
        envelopes = [("gw_1", delivery(sequence)) for sequence in range(start, start + 3)]
        await push.publish(envelopes, timeout_s=SOON_S)
    await quiet(engine)
    assert inbox.heard == list(range(9))


@SUITE.promise
async def each_gateway_gets_its_own_envelopes_and_silence_is_reported(engine: PushEngine) -> None:
    """Returns for each whether a gateway was subscribed."""
    one, two = await subscribed(engine, "gw_1"), await subscribed(engine, "gw_2")
    envelopes = [("gw_2", delivery(1)), ("gw_gone", delivery(2)), ("gw_1", delivery(3)), ("gw_2", delivery(4))]
    assert list(await engine.push().publish(envelopes, timeout_s=SOON_S)) == [True, False, True, True]
    await quiet(engine)
    assert (one.heard, two.heard) == ([3], [1, 4])


@SUITE.promise
async def a_broken_subscription_says_so_before_and_after_the_loss(engine: PushEngine) -> None:
    """Stays subscribed, and reports when it was not. The subscription broke: envelopes may have been lost from here on.
    The subscription is active again: envelopes published from now on arrive."""
    inbox = await subscribed(engine, "gw_1")
    push = engine.push()
    await push.publish([("gw_1", delivery(1))], timeout_s=SOON_S)
    await until(engine, lambda: inbox.heard == [1], "the first envelope")
    await engine.interrupt("gw_1")
    await until(engine, lambda: inbox.heard[-1] == "interrupted", "word of the interruption")
    assert list(await push.publish([("gw_1", delivery(2))], timeout_s=SOON_S)) == [False]
    await engine.restore("gw_1")
    await until(engine, lambda: inbox.heard[-1] == "resumed", "word of the resumption")
    assert list(await push.publish([("gw_1", delivery(3))], timeout_s=SOON_S)) == [True]
    await quiet(engine)
    assert inbox.heard == [1, "interrupted", "resumed", 3]


@SUITE.promise
async def an_interruption_of_one_gateway_leaves_the_others_alone(engine: PushEngine) -> None:
    """The subscription broke: envelopes may have been lost from here on."""
    await subscribed(engine, "gw_1")
    other = await subscribed(engine, "gw_2")
    await engine.interrupt("gw_1")
    await engine.push().publish([("gw_2", delivery(1))], timeout_s=SOON_S)
    await quiet(engine)
    assert other.heard == [1]


@SUITE.promise
async def when_the_server_restarts_every_gateway_hears_of_it(engine: PushEngine) -> None:
    """Stays subscribed, and reports when it was not."""
    inboxes = [await subscribed(engine, gateway_id) for gateway_id in ("gw_1", "gw_2")]
    await engine.wipe()
    for gateway_id in ("gw_1", "gw_2"):
        await engine.restore(gateway_id)
    await quiet(engine)
    await engine.push().publish([("gw_1", delivery(1)), ("gw_2", delivery(2))], timeout_s=SOON_S)
    await quiet(engine)
    assert [inbox.heard for inbox in inboxes] == [["interrupted", "resumed", 1], ["interrupted", "resumed", 2]]


@SUITE.promise
async def a_repeated_subscribe_does_not_double_the_envelopes(engine: PushEngine) -> None:
    """An envelope arrives once or not at all; loss is normal."""
    inbox, subscriber = Inbox(), engine.subscriber()
    await subscriber.subscribe("gw_1", inbox, timeout_s=SOON_S)
    await subscriber.subscribe("gw_1", inbox, timeout_s=SOON_S)
    await engine.push().publish([("gw_1", delivery(1))], timeout_s=SOON_S)
    await quiet(engine)
    assert inbox.heard == [1]


@SUITE.promise
async def after_unsubscribe_the_receiver_hears_nothing(engine: PushEngine) -> None:
    """Returns for each whether a gateway was subscribed."""
    inbox, subscriber = Inbox(), engine.subscriber()
    await subscriber.subscribe("gw_1", inbox, timeout_s=SOON_S)
    await subscriber.unsubscribe("gw_1")
    assert list(await engine.push().publish([("gw_1", delivery(1))], timeout_s=SOON_S)) == [False]
    await quiet(engine)
    assert inbox.heard == []


@SUITE.promise
async def a_call_without_time_left_ends_as_unknown(engine: PushEngine) -> None:
    """It answers within that time or raises `OutcomeUnknown`."""
    with pytest.raises(OutcomeUnknown):
        await engine.push().publish([("gw_1", delivery(1))], timeout_s=0)


@pytest.mark.parametrize("engine", PUSHES)
@pytest.mark.parametrize("promise", SUITE.promises)
async def test_push_keeps(promise: Callable[[PushEngine], Awaitable[None]], engine: Callable[[], PushEngine]) -> None:
    await keep(promise, engine)


def test_every_sentence_of_the_port_is_quoted() -> None:
    assert SUITE.unquoted() == []


async def test_an_envelope_on_its_way_when_the_receiver_unsubscribes_is_not_delivered() -> None:
    late: list[Callable[[], None]] = []

    class Slow(Wire):
        def deliver(self, receive: Callable[[], None], *, lossy: bool = False) -> None:
            late.append(receive)

    engine, inbox = MemoryPushEngine(), Inbox()
    subscriber = InProcessPushSubscriber(engine.channels, Slow())
    await subscriber.subscribe("gw_1", inbox, timeout_s=SOON_S)
    await engine.push().publish([("gw_1", delivery(1))], timeout_s=SOON_S)
    await subscriber.unsubscribe("gw_1")
    for receive in late:
        receive()
    assert (len(late), inbox.heard) == (1, [])


def delivery(sequence: int) -> MessageDelivery:
    message = Message(
        message_id=f"msg_{sequence}",
        chat_id="chat_1",
        sequence=sequence,
        sender_id="user_1",
        client_message_id="550e8400-e29b-41d4-a716-446655440000",
        content="Hi",
        content_type=TEXT,
        created_at="2026-01-30T14:30:00.000Z",
    )
    return MessageDelivery(connection_ids=("conn_1", "conn_2"), message=message, prev_sequence=sequence - 1)


async def subscribed(engine: PushEngine, gateway_id: str) -> Inbox:
    inbox = Inbox()
    await engine.subscriber().subscribe(gateway_id, inbox, timeout_s=SOON_S)
    return inbox
