"""An ingest process that fails is one dependency of several: its failures are calls, its chats go to others."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from seriatim.domain import limits
from seriatim.domain.circuit_breaker import BreakerState
from seriatim.domain.errors import BreakerOpen, OutcomeUnknown, SeriatimError
from seriatim.domain.message import Receipt
from seriatim.engines.grpc.chat_router import ChatRouter
from seriatim.engines.grpc.durability import GrpcDurability, rendezvous
from seriatim.engines.grpc.pending_send import PendingSend
from tests.support.durability_harness import DurabilityHarness, draft
from tests.unit.engines.grpc_harness import IngestProcess, SendRecorder, grpc_client, ingest_processes, until

ONE, TWO = "ingest-1", "ingest-2"
RECEIPT = Receipt(message_id="msg_1", sequence=1, created_at="now")


class KeepingStream:
    """A `DraftSink` that keeps what is put into it."""

    def __init__(self) -> None:
        self.taken: list[PendingSend] = []

    def put(self, send: PendingSend) -> None:
        send.stream = self
        self.taken.append(send)

    def deadline_missed(self) -> None:
        return


class Routed:
    """A router to two processes, and what became of the drafts, chat by chat."""

    def __init__(self, harness: DurabilityHarness) -> None:
        self.now = harness.loop.time
        self.outcomes: list[tuple[str, Receipt | SeriatimError]] = []
        self.router = ChatRouter(harness.node().clock, rendezvous)
        self.streams = {ONE: KeepingStream(), TWO: KeepingStream()}
        self.router.set_streams(self.streams)
        owners = {rendezvous(f"chat_{number}", (ONE, TWO)): f"chat_{number}" for number in range(40)}
        self.chat = {address: owners[address] for address in (ONE, TWO)}

    def send(self, chat_id: str) -> None:
        self.router.submit(
            draft(len(self.outcomes), chat_id=chat_id),
            deadline=self.now() + limits.PERSIST_DEADLINE_S,
            answer=lambda outcome: self.outcomes.append((chat_id, outcome)),
        )

    def taken(self) -> Mapping[str, list[str]]:
        return {address: [each.draft.chat_id for each in stream.taken] for address, stream in self.streams.items()}

    def open(self, address: str) -> None:
        for _ in range(limits.BREAKER_FAILURES_MAX):
            self.router.failed(address)
        assert self.router.breakers()[address] is BreakerState.OPEN


async def test_b2_chats_of_a_process_that_keeps_failing_go_to_another_and_come_back(harness: DurabilityHarness) -> None:
    routed = Routed(harness)
    routed.open(ONE)
    for _ in range(3):
        routed.send(routed.chat[ONE])
        routed.send(routed.chat[TWO])
    assert routed.taken() == {ONE: [], TWO: [routed.chat[ONE], routed.chat[TWO]] * 3}
    for send in routed.streams[TWO].taken:
        send.finish(RECEIPT)
    await asyncio.sleep(limits.BREAKER_OPEN_S)
    others = [f"chat_{number}" for number in range(40) if rendezvous(f"chat_{number}", (ONE, TWO)) == ONE][:3]
    for chat_id in others:
        routed.send(chat_id)
    assert routed.taken()[ONE] == others[:1], "one probe"
    assert routed.taken()[TWO][-2:] == others[1:], "the others need not wait for it"
    routed.router.answered(ONE)
    assert set(routed.router.breakers().values()) == {BreakerState.CLOSED}
    for stream in routed.streams.values():
        for send in stream.taken:
            send.finish(RECEIPT)
    routed.send(others[1])
    assert routed.taken()[ONE] == [others[0], others[1]]


async def test_b2_only_when_no_process_is_left_are_sends_refused_with_a_time_to_retry_after(
    harness: DurabilityHarness,
) -> None:
    routed = Routed(harness)
    routed.open(ONE)
    await asyncio.sleep(10)
    routed.open(TWO)
    routed.send(routed.chat[TWO])
    assert routed.outcomes == [], "never from within"
    await asyncio.sleep(0)
    [(_, refusal)] = routed.outcomes
    assert isinstance(refusal, BreakerOpen)
    assert refusal.retry_after_seconds == limits.BREAKER_OPEN_S - 10
    await asyncio.sleep(limits.BREAKER_OPEN_S - 10)
    routed.send(routed.chat[TWO])
    assert routed.taken() == {ONE: [routed.chat[TWO]], TWO: []}


async def test_b2_what_waits_for_a_process_that_begins_to_fail_follows_to_another_in_order(
    harness: DurabilityHarness,
) -> None:
    routed = Routed(harness)
    chat_id = routed.chat[ONE]
    routed.send(chat_id)
    routed.open(ONE)
    routed.send(chat_id)
    routed.send(chat_id)
    assert routed.taken() == {ONE: [chat_id], TWO: []}, "sends of one chat stay together"
    routed.streams[ONE].taken[0].finish(OutcomeUnknown("lost"))
    assert routed.taken() == {ONE: [chat_id], TWO: [chat_id] * 2}


async def test_b2_what_waits_is_refused_when_the_last_process_begins_to_fail(harness: DurabilityHarness) -> None:
    routed = Routed(harness)
    chat_id = routed.chat[ONE]
    routed.send(chat_id)
    routed.open(ONE)
    for _ in range(1000):
        routed.send(chat_id)
    routed.open(TWO)
    routed.streams[ONE].taken[0].finish(OutcomeUnknown("lost"))
    await asyncio.sleep(0)
    assert [type(outcome) for _, outcome in routed.outcomes].count(BreakerOpen) == 1000


# --- streams ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def two_ingest_processes() -> AsyncIterator[
    tuple[GrpcDurability, SendRecorder, Mapping[str, IngestProcess], Mapping[str, str]]
]:
    """A client of two processes, and a chat of each by its address."""
    async with ingest_processes(2) as both, grpc_client(both) as client:
        await until(lambda: len(client.ready) == 2)
        chats: dict[str, str] = {}
        for number in range(40):
            chats.setdefault(rendezvous(f"chat_{number}", client.ready), f"chat_{number}")
        yield client, SendRecorder(client), {each.address: each for each in both}, chats


async def _taken(ingest: IngestProcess, count: int) -> None:
    await until(lambda: len(ingest.plane.taken) == count)


async def test_b2_a_lost_process_with_forty_drafts_under_way_is_one_failure() -> None:
    async with two_ingest_processes() as (client, recorder, ingests, chats):
        lost, other = client.ready
        ingests[lost].plane.holding = True
        for number in range(40):
            recorder.send(f"lost {number}", chat_id=chats[lost])
        await until(lambda: len(ingests[lost].plane.taken) == 40)
        await ingests[lost].stop()
        await recorder.all(40)
        assert all(isinstance(recorder.of(f"lost {number}"), OutcomeUnknown) for number in range(40))
        assert not client.breaker_open
        for number, address in enumerate((lost, other)):
            recorder.send(f"after {number}", chat_id=chats[address])
        await recorder.all(42)
        assert all(isinstance(recorder.of(f"after {number}"), Receipt) for number in (0, 1))


async def test_b2_a_process_lost_again_and_again_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GRPC_REDIAL_S", 0.01)
    async with two_ingest_processes() as (client, recorder, ingests, chats):
        lost, _ = client.ready
        ingests[lost].plane.holding = True
        for number in range(limits.BREAKER_FAILURES_MAX):
            assert not client.breaker_open
            recorder.send(f"lost {number}", chat_id=chats[lost])
            await _taken(ingests[lost], number + 1)
            await ingests[lost].stop()
            await recorder.all(number + 1)
            await ingests[lost].start()
            await until(lambda: len(client.ready) == 2)
        assert client.breaker_open
        recorder.send("elsewhere", chat_id=chats[lost])
        await recorder.all(limits.BREAKER_FAILURES_MAX + 1)
        assert isinstance(recorder.of("elsewhere"), Receipt)


async def test_b2_a_process_that_is_there_and_answers_nothing_loses_its_chats_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its pings are answered, so its stream stays open. Drafts that run out of time count once a second, not each."""
    monkeypatch.setattr(limits, "GRPC_PING_S", 0.2)
    monkeypatch.setattr(limits, "GRPC_PINGS_UNANSWERED_MAX", 50)  # a busy machine breaks no stream
    async with two_ingest_processes() as (client, recorder, ingests, chats):
        mute, other = client.ready
        ingests[mute].plane.holding = True
        for number in range(100):
            recorder.send(f"mute {number}", chat_id=chats[mute], within_s=0.05)
        await recorder.all(100)
        sent = 100
        while not client.breaker_open:
            assert sent < 200, "it is given up in the end"
            recorder.send(f"mute {sent}", chat_id=chats[mute], within_s=0.05)
            sent += 1
            await recorder.all(sent)
        assert sent > 100 + 1, "a hundred drafts of one moment are one failure"
        for address in (mute, other):
            recorder.send(f"after {address}", chat_id=chats[address])
        await recorder.all(sent + 2)
        assert all(isinstance(recorder.of(f"after {address}"), Receipt) for address in (mute, other))
        ingests[mute].plane.release()


async def test_b2_an_answer_whatever_it_says_speaks_for_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GRPC_PING_S", 0.2)
    monkeypatch.setattr(limits, "GRPC_PINGS_UNANSWERED_MAX", 50)  # a busy machine breaks no stream
    async with two_ingest_processes() as (client, recorder, ingests, chats):
        address, _ = client.ready
        ingests[address].plane.holding = True
        for number in range(3 * limits.BREAKER_FAILURES_MAX):
            recorder.send(f"late {number}", chat_id=chats[address], within_s=0.05)
            await recorder.all(2 * number + 1)
            recorder.send(f"good {number}", chat_id=chats[address])
            await _taken(ingests[address], 2 * number + 2)
            for settle in ingests[address].plane.held:
                settle()
            ingests[address].plane.held.clear()
            await recorder.all(2 * number + 2)
        assert not client.breaker_open
