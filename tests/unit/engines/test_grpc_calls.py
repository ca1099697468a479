"""Single questions to an ingest process: their answers, their errors, their time."""

import asyncio

import msgspec
import pytest

from seriatim.domain import errors, limits
from seriatim.domain.account import Session
from seriatim.domain.errors import (
    CounterMissing,
    InternalError,
    NotAMember,
    OutcomeUnknown,
    SeriatimError,
    ServerBusy,
    ServiceUnavailable,
)
from seriatim.domain.message import Message
from seriatim.engines.grpc import wire
from seriatim.engines.grpc.dial import GrpcDialer
from seriatim.ports.durability import PrefixPage
from tests.support.log_reasons import because
from tests.unit.engines.grpc_harness import SOON_S, grpc_client, ingest_processes, until

SESSION = Session(
    session_id="ses_1",
    user_id="user_ann",
    device_id="device",
    refresh_digest="secret",
    previous_digest="older secret",
    created_at_ms=1,
    expires_at_ms=2,
    last_active_at_ms=3,
)


async def test_every_question_reaches_the_plane_and_brings_its_answer_back() -> None:
    async with ingest_processes(1) as [ingest], grpc_client([ingest]) as client:
        page = await client.read("user_ann", "chat_1", after=4, limit=2, timeout_s=SOON_S)
        assert (page.messages[0].sequence, page.through, page.has_more) == (5, 6, True)
        back = await client.read_back("user_ann", "chat_1", before=9, after=0, limit=2, timeout_s=SOON_S)
        assert back.has_more is False
        await client.acknowledge("user_ann", "chat_1", sequence=3, timeout_s=SOON_S)
        assert await client.heads(["chat_1", "chat_2"], timeout_s=SOON_S) == {"chat_1": 7, "chat_2": 7}
        assert await client.heads([], timeout_s=SOON_S) == {}
        assert await client.joined({"user_ann": "2026"}, timeout_s=SOON_S) == {"user_ann": ["chat_of_user_ann"]}
        assert await client.joined({}, timeout_s=SOON_S) == {}
        assert await client.session("ses_1", timeout_s=SOON_S) is None
        methods = [method for method, _, _ in ingest.plane.calls]
        assert methods == ["read", "read_back", "acknowledge", "heads", "joined", "session"]
        assert all(SOON_S - 2 < timeout_s < SOON_S + 0.1 for *_, timeout_s in ingest.plane.calls)


async def test_a_gateway_is_not_shown_the_digests_of_refresh_tokens() -> None:
    async with ingest_processes(1) as [ingest], grpc_client([ingest]) as client:
        ingest.plane.sessions["ses_1"] = SESSION
        session = await client.session("ses_1", timeout_s=SOON_S)
        assert session is not None
        assert (session.user_id, session.expires_at_ms) == ("user_ann", 2)
        assert (session.refresh_digest, session.previous_digest) == ("", None)


async def test_the_largest_page_fits() -> None:
    async with ingest_processes(1) as [ingest], grpc_client([ingest]) as client:
        message = Message(
            message_id="m" * 64,
            chat_id="c" * 64,
            sequence=limits.SEQUENCE_MAX,
            sender_id="s" * 64,
            client_message_id="i" * 36,
            content="x" * limits.CONTENT_BYTES_MAX,
            content_type="text/plain",
            created_at="2026-01-01T00:00:00.000Z",
        )
        page = PrefixPage(messages=(message,) * limits.SYNC_SLOTS_MAX, through=500, has_more=True)

        async def read(*_: object, **__: object) -> PrefixPage:
            return page

        ingest.plane.read = read  # type: ignore[method-assign]
        assert await client.read("user_ann", "chat_1", after=0, limit=500, timeout_s=SOON_S) == page


async def test_a_refusal_arrives_as_what_it_was() -> None:
    async with ingest_processes(1) as [ingest], grpc_client([ingest]) as client:
        ingest.plane.failure = NotAMember("you are not in this chat")
        with pytest.raises(NotAMember, match="you are not in this chat"):
            await client.read("user_ann", "chat_1", after=0, limit=1, timeout_s=SOON_S)


async def test_a_bug_over_there_is_an_internal_error_here_and_tells_nothing() -> None:
    async with ingest_processes(1) as [ingest], grpc_client([ingest]) as client:
        ingest.plane.failure = ZeroDivisionError("what somebody wrote")
        with pytest.raises(InternalError) as caught:
            await client.acknowledge("user_ann", "chat_1", sequence=1, timeout_s=SOON_S)
        assert "somebody" not in caught.value.message


async def test_a_question_without_an_answer_ends_in_time() -> None:
    async with ingest_processes(1) as [ingest], grpc_client([ingest]) as client:
        await until(lambda: client.ready)
        ingest.plane.stuck = asyncio.Event()
        began = asyncio.get_running_loop().time()
        with pytest.raises(OutcomeUnknown):
            await client.heads(["chat_1"], timeout_s=0.2)
        assert asyncio.get_running_loop().time() - began < 1


async def test_a_lost_process_ends_its_questions_at_once() -> None:
    async with ingest_processes(1) as [ingest], grpc_client([ingest]) as client:
        await until(lambda: client.ready)
        ingest.plane.stuck = asyncio.Event()
        asking = asyncio.create_task(client.heads(["chat_1"], timeout_s=60.0))
        await until(lambda: ingest.plane.calls)
        await ingest.stop()
        with pytest.raises(OutcomeUnknown):
            await asyncio.wait_for(asking, 2)


async def test_the_end_of_the_client_ends_its_questions() -> None:
    async with ingest_processes(1) as [ingest]:
        async with grpc_client([ingest]) as client:
            await until(lambda: client.ready)
            ingest.plane.stuck = asyncio.Event()
            asking = asyncio.create_task(client.heads(["chat_1"], timeout_s=60.0))
            await until(lambda: ingest.plane.calls)
        with pytest.raises(OutcomeUnknown):
            await asyncio.wait_for(asking, 2)


async def test_a_caller_that_stops_waiting_is_cancelled_and_gets_no_other_error() -> None:
    async with ingest_processes(1) as [ingest], grpc_client([ingest]) as client:
        await until(lambda: client.ready)
        ingest.plane.stuck = asyncio.Event()
        asking = asyncio.create_task(client.heads(["chat_1"], timeout_s=60.0))
        await until(lambda: ingest.plane.calls)
        asking.cancel()
        await asyncio.wait((asking,))
        assert asking.cancelled()


async def test_a_call_waits_for_an_ingest_process_but_not_for_ever() -> None:
    async with ingest_processes(1) as [ingest]:
        await ingest.stop()
        async with grpc_client([ingest]) as client:
            with pytest.raises(ServiceUnavailable):
                await client.heads(["chat_1"], timeout_s=0.1)
            asking = asyncio.create_task(client.heads(["chat_1"], timeout_s=SOON_S))
            await ingest.start()
            assert await asking == {"chat_1": 7}


async def test_one_question_more_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GRPC_CALLS_MAX", 2)
    async with ingest_processes(1) as [ingest]:
        monkeypatch.setattr(limits, "GRPC_CALLS_MAX", 1)  # the server still takes two
        async with grpc_client([ingest]) as client:
            await until(lambda: client.ready)
            ingest.plane.stuck = asyncio.Event()
            asking = asyncio.create_task(client.heads(["chat_1"], timeout_s=SOON_S))
            await until(lambda: ingest.plane.calls)
            with pytest.raises(ServerBusy):
                await client.heads(["chat_1"], timeout_s=SOON_S)
            monkeypatch.setattr(limits, "GRPC_CALLS_MAX", 5)
            with pytest.raises(ServerBusy):  # the stream is the other call that the server takes
                await client.heads(["chat_1"], timeout_s=SOON_S)
            ingest.plane.stuck.set()
            assert await asking == {"chat_1": 7}


async def test_a_caller_without_the_token_gets_no_answer_from_ingest() -> None:
    async with (
        ingest_processes(1, token="right") as [ingest],
        grpc_client([ingest], dialer=GrpcDialer(token="right")) as client,
    ):
        await until(lambda: client.ready)
        stranger = GrpcDialer(token="wrong")
        client._dialer.metadata = stranger.metadata
        with pytest.raises(OutcomeUnknown, check=because("UNAUTHENTICATED")):
            await client.heads(["chat_1"], timeout_s=SOON_S)
        assert ingest.plane.calls == []


# --- errors on the wire -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(wire._KINDS.values()), ids=lambda kind: kind.__name__)
def test_an_error_is_the_same_on_the_other_side(kind: type[SeriatimError]) -> None:
    error = wire.from_wire_error(wire.WireError(kind.__name__, "why", 1.5, {"field": "content", "max_bytes": 4096}))
    crossed = wire.from_wire_error(wire.decode(_wire_error, wire.encode(wire.to_wire_error(error))))
    assert type(crossed) is kind
    assert (crossed.message, crossed.retry_after_seconds) == ("why", 1.5)
    assert crossed.details == {"field": "content", "max_bytes": 4096}
    assert str(crossed) == "why"


def test_every_seriatim_error_can_cross_the_wire() -> None:
    ours = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, SeriatimError)}
    assert ours - set(wire._KINDS) == {"CounterMissing"}


def test_a_missing_counter_crosses_as_what_a_gateway_needs_to_know_of_it() -> None:
    crossed = wire.from_wire_error(wire.to_wire_error(CounterMissing("chat_1")))
    assert type(crossed) is InternalError
    assert crossed.retry_after_seconds == 60
    assert not crossed.trips_breaker


def test_an_error_of_a_later_release_is_an_internal_error_here() -> None:
    assert type(wire.from_wire_error(wire.WireError("Sunspots", "too many"))) is InternalError


def test_a_field_that_a_later_release_adds_is_ignored() -> None:
    class Newer(wire.WireError, frozen=True):
        colour: str = "red"

    assert wire.decode(_wire_error, wire.encode(Newer("NotFound", "why", colour="blue"))).kind == "NotFound"


def test_other_bytes_are_refused_as_another_language() -> None:
    with pytest.raises(wire.MalformedBytes):
        wire.decode(_wire_error, b"hello")


_wire_error = msgspec.msgpack.Decoder(wire.WireError)
