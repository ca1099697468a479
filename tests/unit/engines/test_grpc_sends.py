"""Drafts on their way to ingest processes: in order, answered once, whatever breaks in between."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc
import msgspec
import pytest
from msgspec import Raw

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown, SeriatimError, ServerBusy, ServiceUnavailable
from seriatim.domain.message import Receipt
from seriatim.domain.sharding import bucket, owner
from seriatim.engines.grpc.dial import GrpcDialer
from seriatim.engines.grpc.discovery import DnsAddresses
from seriatim.engines.grpc.wire import DRAFT_STREAM, SERVICE, DraftBatch, NumberedDraft, ServerBatch, encode, path
from tests.unit.engines.grpc_harness import (
    SOON_S,
    IngestProcess,
    SendRecorder,
    draft_of,
    grpc_client,
    ingest_processes,
    until,
)

CHATS = [f"chat_{number}" for number in range(40)]


async def test_a_chats_drafts_go_to_the_owner_of_its_bucket_in_order() -> None:
    async with ingest_processes(3) as three, grpc_client(three) as client:
        await until(lambda: len(client.ready) == 3)
        recorder = SendRecorder(client)
        for number in range(10):
            for chat_id in CHATS:
                recorder.send(f"{chat_id}/{number}", chat_id=chat_id)
        await recorder.all(400)
        for each in three:
            for chat_id in {draft.chat_id for draft in each.plane.taken}:
                assert owner(bucket(chat_id), client.ready) == each.address
                texts = [text for text in each.plane.texts if text.startswith(f"{chat_id}/")]
                assert texts == [f"{chat_id}/{number}" for number in range(10)]
        assert all(each.plane.taken for each in three)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"client_message_id": "not-a-uuid"}, "INVALID_MESSAGE"),
        ({"chat_id": "no spaces allowed"}, "INVALID_MESSAGE"),
        ({"content": ""}, "INVALID_MESSAGE"),
        ({"content": "x" * (limits.CONTENT_BYTES_MAX + 1)}, "MESSAGE_TOO_LARGE"),
        ({"content_type": "text/html"}, "INVALID_CONTENT_TYPE"),
    ],
)
async def test_a_draft_that_no_gateway_should_have_sent_is_refused_on_arrival(
    change: dict[str, str], code: str
) -> None:
    async with ingest_processes(1) as [ingest], grpc_client([ingest]) as client:
        await until(lambda: client.ready)
        outcomes: list[Receipt | SeriatimError] = []
        for each in (msgspec.structs.replace(draft_of("bad"), **change), draft_of("good")):
            client.submit(each, deadline=asyncio.get_running_loop().time() + SOON_S, answer=outcomes.append)
        await until(lambda: len(outcomes) == 2)
        [refusal] = [each for each in outcomes if isinstance(each, SeriatimError)]
        assert refusal.code == code
        assert ingest.plane.texts == ["good"]


async def test_a_backlog_travels_in_few_batches_and_every_answer_finds_its_send() -> None:
    async with ingest_processes(1) as [ingest], grpc_client([ingest]) as client:
        await until(lambda: client.ready)
        recorder = SendRecorder(client)
        texts = [f"{number:05}" + "x" * 4000 for number in range(1000)]  # four batches
        for text in texts:
            recorder.send(text)
        await recorder.all(1000)
        assert ingest.plane.texts == texts
        sequences = [outcome.sequence for text in texts if isinstance(outcome := recorder.of(text), Receipt)]
        assert sequences == list(range(1, 1001))


async def test_a_draft_carries_what_is_left_of_its_time() -> None:
    async with ingest_processes(1) as [ingest], grpc_client([ingest]) as client:
        await until(lambda: client.ready)
        recorder = SendRecorder(client)
        recorder.send("short", within_s=2.0)
        recorder.send("long", within_s=60.0)
        await recorder.all(2)
        short, long = ingest.plane.left_s
        assert 1.0 < short <= 2.0
        assert 4.0 < long <= limits.PERSIST_DEADLINE_S


async def test_a_send_without_an_answer_ends_at_its_deadline_and_a_late_answer_is_dropped() -> None:
    async with ingest_processes(1) as [ingest], grpc_client([ingest]) as client:
        await until(lambda: client.ready)
        recorder = SendRecorder(client)
        ingest.plane.holding = True
        recorder.send("one", within_s=0.2)
        await recorder.all(1)
        assert isinstance(recorder.of("one"), OutcomeUnknown)
        ingest.plane.release()
        recorder.send("two")
        await recorder.all(2)
        assert isinstance(recorder.of("two"), Receipt)
        assert isinstance(recorder.of("one"), OutcomeUnknown)


async def test_a_lost_process_leaves_its_sends_unknown_at_once_and_its_chats_move_on() -> None:
    async with ingest_processes(2) as both, grpc_client(both) as client:
        await until(lambda: len(client.ready) == 2)
        recorder = SendRecorder(client)
        for each in both:
            each.plane.holding = True
        for chat_id in CHATS:
            recorder.send(chat_id, chat_id=chat_id)
        await until(lambda: sum(len(each.plane.taken) for each in both) == len(CHATS))
        lost, other = both
        began = asyncio.get_running_loop().time()
        await lost.stop()
        await recorder.all(len(lost.plane.taken))
        assert asyncio.get_running_loop().time() - began < 2
        assert all(isinstance(recorder.of(text), OutcomeUnknown) for text in lost.plane.texts)
        other.plane.release()
        for chat_id in CHATS:
            recorder.send(f"{chat_id} again", chat_id=chat_id)
        await recorder.all(2 * len(CHATS))
        assert all(isinstance(recorder.of(f"{chat_id} again"), Receipt) for chat_id in CHATS)


async def test_a_process_that_comes_back_gets_its_chats_back() -> None:
    async with ingest_processes(2) as both, grpc_client(both) as client:
        await until(lambda: len(client.ready) == 2)
        await both[0].stop()
        await until(lambda: client.ready == (both[1].address,))
        await both[0].start()
        await until(lambda: len(client.ready) == 2)
        recorder = SendRecorder(client)
        for chat_id in CHATS:
            recorder.send(chat_id, chat_id=chat_id)
        await recorder.all(len(CHATS))
        assert all(each.plane.taken for each in both)


async def test_drafts_wait_for_an_ingest_process_and_keep_their_order() -> None:
    async with ingest_processes(1) as [ingest]:
        await ingest.stop()
        async with grpc_client([ingest]) as client:
            recorder = SendRecorder(client)
            for number in range(5):
                recorder.send(str(number))
            await asyncio.sleep(0.05)
            assert recorder.outcomes == {}
            await ingest.start()
            await recorder.all(5)
            assert ingest.plane.texts == ["0", "1", "2", "3", "4"]


async def test_without_an_ingest_process_drafts_fail_at_their_deadline() -> None:
    async with ingest_processes(1) as [ingest]:
        await ingest.stop()
        async with grpc_client([ingest]) as client:
            recorder = SendRecorder(client)
            recorder.send("one", within_s=0.1)
            recorder.send("two", within_s=0.2)
            await recorder.all(2)
            for text in ("one", "two"):
                assert type(recorder.of(text)) is ServiceUnavailable
            await ingest.start()
            recorder.send("three")
            await recorder.all(3)
            assert ingest.plane.texts == ["three"]


async def test_a_leaving_process_answers_what_it_has_and_the_rest_follows_elsewhere_in_order() -> None:
    async with ingest_processes(2) as both, grpc_client(both) as client:
        await until(lambda: len(client.ready) == 2)
        leaving, other = sorted(both, key=lambda each: each.address != owner(bucket("chat_1"), client.ready))
        recorder = SendRecorder(client)
        leaving.plane.holding = True
        recorder.send("one")
        await until(lambda: leaving.plane.taken)
        going = asyncio.create_task(leaving.server.leave())
        await until(lambda: client.ready == (other.address,))
        recorder.send("two")
        recorder.send("three")
        recorder.send("elsewhere", chat_id="chat_2")  # another chat need not wait
        await recorder.all(1)
        assert other.plane.texts == ["elsewhere"]
        leaving.plane.release()
        await recorder.all(4)
        assert other.plane.texts == ["elsewhere", "two", "three"]
        assert all(isinstance(recorder.of(text), Receipt) for text in recorder.outcomes)
        await asyncio.wait_for(going, 2)
        assert leaving.server.gateways == 0


async def test_a_leaving_process_takes_no_new_stream() -> None:
    async with ingest_processes(1) as [ingest]:
        await ingest.server.leave()
        async with grpc_client([ingest]) as client:
            recorder = SendRecorder(client)
            recorder.send("one", within_s=0.3)
            await recorder.all(1)
            assert type(recorder.of("one")) is ServiceUnavailable


async def test_one_draft_more_than_the_limit_is_refused_and_never_from_within(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GRPC_SENDS_MAX", 3)
    async with ingest_processes(1) as [ingest], grpc_client([ingest]) as client:
        await until(lambda: client.ready)
        ingest.plane.holding = True
        recorder = SendRecorder(client)
        for number in range(4):
            recorder.send(str(number))
        assert recorder.outcomes == {}
        await recorder.all(1)
        assert isinstance(recorder.of("3"), ServerBusy)
        ingest.plane.release()
        await recorder.all(4)
        recorder.send("4")
        await recorder.all(5)
        assert isinstance(recorder.of("4"), Receipt)


async def test_a_process_that_stands_still_is_given_up_before_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GRPC_PING_S", 0.05)
    async with silent_server() as address, grpc_client(_at(address)) as client:
        await until(lambda: client.ready)
        recorder = SendRecorder(client)
        recorder.send("one")
        began = asyncio.get_running_loop().time()
        await recorder.all(1)
        assert isinstance(recorder.of("one"), OutcomeUnknown)
        assert asyncio.get_running_loop().time() - began < limits.PERSIST_DEADLINE_S / 2


async def test_drafts_that_waited_in_a_socket_while_their_process_stood_still_have_no_time_left() -> None:
    async with ingest_processes(1) as [ingest], grpc.aio.insecure_channel(ingest.address) as channel:
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(path(DRAFT_STREAM))()
        await call.read()
        for number, sent_at_s in ((1, 1000.0), (2, 1000.5 - 60)):  # the second took a minute longer than the first
            draft = draft_of(f"text {number}")
            await call.write(encode(DraftBatch(sent_at_s, (Raw(encode(NumberedDraft(number, 5.0, draft))),))))
            await call.read()
        on_time, late = ingest.plane.left_s
        assert 4 < on_time <= 5
        assert -60 < late < -50
        call.cancel()


async def test_a_quiet_line_lives_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many short pings: a busy machine may hold back the threads of gRPC for a second, which breaks no stream."""
    pings_max = 75
    monkeypatch.setattr(limits, "GRPC_PING_S", 0.02)
    monkeypatch.setattr(limits, "GRPC_PINGS_UNANSWERED_MAX", pings_max)
    async with ingest_processes(1) as [ingest], grpc_client([ingest]) as client:
        await until(lambda: client.ready)
        [before] = client.ready
        conversation = next(iter(ingest.server._streams))
        for _ in range(pings_max + 10):  # longer than a stream without pongs would last
            await asyncio.sleep(0.02)
        assert client.ready == (before,)
        assert next(iter(ingest.server._streams)) is conversation


async def test_a_client_without_the_token_is_refused() -> None:
    async with ingest_processes(1, token="right") as [ingest]:
        for word in ("", "wrong"):
            async with grpc_client([ingest], dialer=GrpcDialer(token=word)) as client:
                recorder = SendRecorder(client)
                recorder.send("one", within_s=0.3)
                await recorder.all(1)
                assert type(recorder.of("one")) is ServiceUnavailable
        async with grpc_client([ingest], dialer=GrpcDialer(token="right")) as client:
            recorder = SendRecorder(client)
            recorder.send("one")
            await recorder.all(1)
            assert isinstance(recorder.of("one"), Receipt)


async def test_a_name_stands_for_every_process_behind_it() -> None:
    async with ingest_processes(1) as [ingest], grpc_client(DnsAddresses("localhost", ingest.port)) as client:
        await until(lambda: ingest.address in client.ready)


async def test_processes_that_are_listed_no_more_get_no_more_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GRPC_RESOLVE_S", 0.02)
    async with ingest_processes(2) as both:
        source = _ChangingAddresses([each.address for each in both])
        async with grpc_client(source) as client:
            await until(lambda: len(client.ready) == 2)
            source.listed = [both[0].address]
            await until(lambda: client.ready == (both[0].address,))
            source.failing = True
            await asyncio.sleep(0.1)
            assert client.ready == (both[0].address,)
            source.failing = False
            source.listed = [each.address for each in both]
            await until(lambda: len(client.ready) == 2)


async def test_ending_the_client_answers_everybody() -> None:
    async with ingest_processes(1) as [ingest]:
        async with grpc_client([ingest]) as client:
            await until(lambda: client.ready)
            ingest.plane.holding = True
            recorder = SendRecorder(client)
            recorder.send("one")
            await until(lambda: ingest.plane.taken)
        assert isinstance(recorder.of("one"), OutcomeUnknown)
        ingest.plane.release()  # to no caller


async def test_a_port_that_is_taken_is_refused() -> None:
    async with ingest_processes(1) as [ingest]:
        other = IngestProcess()
        other.port = ingest.port
        with pytest.raises(OSError, match="taken"):
            await other.start()
        await other.stop()


class _ChangingAddresses:
    def __init__(self, addresses: Sequence[str]) -> None:
        self.listed = addresses
        self.failing = False

    async def addresses(self) -> Sequence[str]:
        if self.failing:
            raise OSError("no name server")
        return self.listed


def _at(address: str) -> _ChangingAddresses:
    return _ChangingAddresses([address])


@asynccontextmanager
async def silent_server() -> AsyncIterator[str]:
    """A server that greets and then answers nothing."""

    async def draft_stream(requests: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        await context.write(encode(ServerBatch()))
        await asyncio.Event().wait()

    server = grpc.aio.server()
    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        DRAFT_STREAM: grpc.stream_stream_rpc_method_handler(draft_stream)
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)
