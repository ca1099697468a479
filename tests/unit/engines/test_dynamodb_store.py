"""DynamoDB as it is used: how many calls, how rows look, what is repeated and what never is."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from seriatim.domain import limits
from seriatim.domain.chat import Role
from seriatim.domain.errors import Conflict, InternalError, OutcomeUnknown, SeriatimError, Throttled
from seriatim.domain.message import Draft, Receipt
from seriatim.durability.ingest import Ingest
from seriatim.engines.dynamodb.catalog import DynamoCatalog
from seriatim.engines.dynamodb.message_log import DynamoMessageLog
from seriatim.engines.dynamodb.store import DynamoStore
from seriatim.engines.dynamodb.transport.client import DynamoClient
from seriatim.engines.dynamodb.transport.signing import AwsCredentials
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.inprocess.wire import Wire
from seriatim.ports.event_log import MESSAGES
from seriatim.ports.message_log import Allocation, Cancelled, SenderGone
from seriatim.simulation.stores.event_log import MemoryBroker, MemoryEventWriter
from tests.contract.account_data import PHONE, PHONES, code, issue, session, sign_in, user
from tests.contract.store_data import (
    ANN,
    BOB,
    CHAT,
    CID,
    DAN,
    LATER_MS,
    NOW_MS,
    T_S,
    all_slots,
    allocate,
    direct,
    entry,
    error_of,
    found_group,
    message,
    persist,
    seal,
    version_and_count,
)
from tests.support.real_dynamodb import PATIENCE_S
from tests.unit.engines.faulty_dynamodb import FaultyDynamoEngine, Row, faulty_engine
from tests.unit.engines.scripted_http_server import Server, http, serving

BUSY = "the store is busy"


@pytest.fixture
async def engine() -> AsyncIterator[FaultyDynamoEngine]:
    async with faulty_engine() as opened:
        yield opened


# --- how many calls ---------------------------------------------------------------------------------------------------


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine ends no lease and lets no chat fall idle: either would make calls of its own."""
    monkeypatch.setattr(limits, "SLOT_LEASE_S", PATIENCE_S)
    monkeypatch.setattr(limits, "PIPELINE_IDLE_S", PATIENCE_S)


@pytest.mark.usefixtures("unhurried")
async def test_a_send_alone_makes_three_calls(engine: FaultyDynamoEngine) -> None:
    await found_group(engine)
    clock, broker = SystemClock(), MemoryBroker({MESSAGES: 1})
    ingest = Ingest(
        log=engine.log(), events=MemoryEventWriter(broker, Wire(), clock.now_ms), clock=clock, producer_id="test"
    )
    assert engine.faults.operations
    for number in range(1, 4):
        receipt = await _send(ingest, clock, f"0d9c6a40-0f0e-4c7a-9d1e-00000000000{number}")
        assert receipt.sequence == number
        assert engine.faults.operations == ["BatchGetItem", "UpdateItem", "TransactWriteItems"]
    await ingest.drain()


@pytest.mark.usefixtures("unhurried")
async def test_twenty_four_writers_share_their_calls(engine: FaultyDynamoEngine) -> None:
    await found_group(engine)
    clock, broker = SystemClock(), MemoryBroker({MESSAGES: 1})
    ingest = Ingest(
        log=engine.log(), events=MemoryEventWriter(broker, Wire(), clock.now_ms), clock=clock, producer_id="test"
    )
    assert engine.faults.operations

    async def write(writer: int) -> None:
        for number in range(5):
            await _send(ingest, clock, f"0d9c6a40-0f0e-4c7a-9d1e-0000000{writer:03}{number:02}")

    await asyncio.gather(*(write(writer) for writer in range(24)))
    assert len(engine.faults.operations) / (24 * 5) <= 0.5
    assert len(await all_slots(engine)) == 24 * 5
    await ingest.drain()


async def test_an_allocation_asks_twice_only_while_something_is_unpublished(engine: FaultyDynamoEngine) -> None:
    await found_group(engine)
    log = engine.log()
    await allocate(log, 3)
    assert engine.faults.operations[-1:] == ["UpdateItem"]
    await allocate(log, 1, through=3, last=3)
    assert engine.faults.operations == ["UpdateItem"]
    await allocate(log, 1, through=3, last=3)
    assert engine.faults.operations == ["UpdateItem", "UpdateItem"]


async def test_the_newest_message_below_many_tombstones_is_found_page_by_page(engine: FaultyDynamoEngine) -> None:
    await found_group(engine)
    log = engine.log()
    assert await persist(log, entry(message(1))) is None
    for sequence in range(2, 60):
        await seal(log, sequence)
    assert engine.faults.operations
    assert await log.newest_message(CHAT, at_most=100, timeout_s=T_S) == 1
    assert engine.faults.operations == ["Query"] * 3


# --- rows -------------------------------------------------------------------------------------------------------------


async def test_rows_have_the_attributes_of_the_specification(engine: FaultyDynamoEngine) -> None:
    await found_group(engine)
    await engine.catalog().create_direct(direct("chat_2", ANN), BOB, now_ms=NOW_MS, timeout_s=T_S)
    await allocate(engine.log(), 2)
    assert await persist(engine.log(), entry(message(1))) is None
    await seal(engine.log(), 2)
    await engine.log().acknowledge(BOB, CHAT, sequence=1, now_ms=NOW_MS, timeout_s=T_S)
    await issue(engine)
    await sign_in(engine, session(), user())
    await engine.request_keys().claim("scope", "key", body_hash="b", resource_id="r", now_ms=NOW_MS, timeout_s=T_S)
    slot = "chat_id:S sequence:N kind:S created_at:S"
    expected = {
        "users": "user_id:S phone_number:S phone_verified:BOOL display_name:NULL created_at:S updated_at:S",
        "phones": "user_id:S canonical_user_id:S created_at:S",
        "chats": "chat_id:S chat_type:S name:S created_by:S created_at:S updated_at:S status:S member_count:N",
        "chat_memberships": "chat_id:S user_id:S role:S joined_at:S added_by:S updated_at:S",
        "messages": f"{slot} message_id:S sender_id:S client_message_id:S content:S content_type:S",
        "tombstones": slot,
        "chat_counters": "chat_id:S sequence_counter:N published_through:N published_message:N members_version:N "
        "members_sum:N created_at:S updated_at:S dirty_at:S dirty_bucket:N",
        "idempotency_keys": "chat_id:S client_message_id:S message_id:S sequence:N sender_id:S content_sha256:S "
        "created_at:S ttl:N",
        "delivery_state": "user_id:S chat_id:S last_acked_sequence:N updated_at:S",
        "sessions": "session_id:S user_id:S device_id:S refresh_token_hash:S token_generation:N created_at:S "
        "expires_at:S last_active_at:S ttl:N",
        "otp_requests": "phone_hash:S otp_mac:S otp_ciphertext:B created_at:S expires_at:S attempt_count:N status:S "
        "ttl:N session_id:S device_id:S is_new_user:BOOL",
        "direct_chat_index": "pair_key:S chat_id:S created_at:S",
        "api_idempotency": "scope:S idem_key:S body_hash:S state:S resource_id:S claimed_at:S expires_at:S ttl:N",
    }
    rows = {
        "users": await engine.row("users", user_id=ANN),
        "phones": await engine.row("users", user_id=f"PHONE#{PHONE}"),
        "chats": await engine.row("chats", chat_id=CHAT),
        "chat_memberships": await engine.row("chat_memberships", chat_id=CHAT, user_id=ANN),
        "messages": await engine.row("messages", chat_id=CHAT, sequence=1),
        "tombstones": await engine.row("messages", chat_id=CHAT, sequence=2),
        "chat_counters": await engine.row("chat_counters", chat_id=CHAT),
        "idempotency_keys": await engine.row("idempotency_keys", chat_id=CHAT, client_message_id="key-1"),
        "delivery_state": await engine.row("delivery_state", user_id=BOB, chat_id=CHAT),
        "sessions": await engine.row("sessions", session_id="sess_1"),
        "otp_requests": await engine.row("otp_requests", phone_hash=PHONE),
        "direct_chat_index": await engine.row("direct_chat_index", pair_key=f"{ANN}#{BOB}"),
        "api_idempotency": await engine.row("api_idempotency", scope="scope", idem_key="key"),
    }
    assert {table: _kinds(row) for table, row in rows.items()} == {
        table: sorted(attributes.split()) for table, attributes in expected.items()
    }
    assert PHONES[ANN] not in str(rows["phones"])


async def test_a_clean_chat_is_in_no_part_of_the_dirty_index(engine: FaultyDynamoEngine) -> None:
    """An index is sparse by what rows lack: an attribute that stays behind would keep every chat in it."""
    await found_group(engine)
    assert "dirty_bucket" not in await engine.row("chat_counters", chat_id=CHAT)
    await allocate(engine.log(), 1)
    assert "dirty_bucket" in await engine.row("chat_counters", chat_id=CHAT)
    assert await engine.log().flush(CHAT, published_through=1, published_message=1, timeout_s=T_S)
    clean = await engine.row("chat_counters", chat_id=CHAT)
    assert [name for name in clean if name.startswith("dirty")] == []


async def test_every_part_of_the_dirty_index_is_asked(engine: FaultyDynamoEngine) -> None:
    chats = [f"chat_{number}" for number in range(3 * limits.DIRTY_BUCKETS)]
    for number, chat_id in enumerate(chats):
        await found_group(engine, chat_id, members=[])
        await allocate(engine.log(), chat_id=chat_id, now_ms=NOW_MS + number)
    buckets = [(await engine.row("chat_counters", chat_id=each))["dirty_bucket"]["N"] for each in chats]
    assert len(dict.fromkeys(map(str, buckets))) > limits.DIRTY_BUCKETS // 2
    found = await engine.log().dirty(before_ms=LATER_MS, limit=1000, timeout_s=T_S)
    assert [each.chat_id for each in found] == chats


# --- tokens: the memory store says that a real store does this --------------------------------------------------------


async def test_a_repeated_token_is_one_commit(engine: FaultyDynamoEngine) -> None:
    await found_group(engine)
    entries = [entry(message(1)), entry(message(2))]
    assert await persist(engine.log(), *entries, token="token-a") is None
    assert await persist(engine.log(), *entries, token="token-a") is None
    assert await all_slots(engine) == [message(1), message(2)]


async def test_a_token_belongs_to_one_transaction(engine: FaultyDynamoEngine) -> None:
    await found_group(engine)
    assert await persist(engine.log(), entry(message(1)), token="token-b") is None
    with pytest.raises(InternalError):
        await persist(engine.log(), entry(message(2)), token="token-b")
    assert await all_slots(engine) == [message(1)]


async def test_a_cancelled_transaction_is_tried_again_under_its_token(engine: FaultyDynamoEngine) -> None:
    await found_group(engine)
    late = entry(message(1, sender=DAN))
    assert await persist(engine.log(), late, token="token-c") == Cancelled((SenderGone(DAN),))
    await engine.catalog().add_member(CHAT, DAN, Role.MEMBER, by=ANN, now_ms=NOW_MS, timeout_s=T_S)
    assert await persist(engine.log(), late, token="token-c") is None


# --- what is repeated, and what never is ------------------------------------------------------------------------------


async def test_the_message_log_repeats_nothing(engine: FaultyDynamoEngine) -> None:
    """Its callers have a patience of their own; an allocation repeated behind their back would burn slots."""
    await found_group(engine)
    log = engine.log()
    calls: list[tuple[str, Callable[[], Awaitable[object]]]] = [
        ("UpdateItem", lambda: allocate(log)),
        ("TransactWriteItems", lambda: persist(log, entry(message(1)))),
        ("PutItem", lambda: seal(log, 1)),
        ("BatchGetItem", lambda: log.lookup(CHAT, [], [ANN], timeout_s=T_S)),
        ("Query", lambda: log.read(CHAT, after=0, limit=1, timeout_s=T_S)),
    ]
    for refusal in (Throttled, Conflict, OutcomeUnknown):
        for operation, call in calls:
            engine.faults.refusals[operation] = [refusal(BUSY)]
            assert engine.faults.operations is not None
            assert await error_of(call) is refusal
            assert engine.faults.operations == [operation]
    assert await allocate(log) == Allocation(first=1, last=1, members_version=1)


async def test_a_change_that_the_store_refused_is_repeated_and_made_once(engine: FaultyDynamoEngine) -> None:
    await found_group(engine)
    await engine.accounts().add_user(user(), timeout_s=T_S)
    await issue(engine)
    busy: list[Exception] = [Conflict(BUSY), Throttled(BUSY), Conflict(BUSY)]
    version, count = await version_and_count(engine)
    engine.faults.refusals["TransactWriteItems"] = list(busy)
    await engine.catalog().add_member(CHAT, DAN, Role.MEMBER, by=ANN, now_ms=LATER_MS, timeout_s=T_S)
    assert await version_and_count(engine) == (version + 1, count + 1)
    engine.faults.refusals["TransactWriteItems"] = list(busy)
    await found_group(engine, "chat_2")
    engine.faults.refusals["TransactWriteItems"] = list(busy)
    await sign_in(engine)
    for operation, call in (
        ("UpdateItem", lambda: engine.accounts().count_attempt(PHONE, now_ms=NOW_MS, timeout_s=T_S)),
        ("PutItem", lambda: engine.accounts().open_session(session("sess_9"), timeout_s=T_S)),
        ("DeleteItem", lambda: engine.accounts().revoke("sess_9", timeout_s=T_S)),
        ("UpdateItem", lambda: engine.catalog().mute(CHAT, BOB, None, timeout_s=T_S)),
    ):
        engine.faults.refusals[operation] = list(busy)
        await call()
    tried = await engine.accounts().code(PHONE, timeout_s=T_S)
    assert tried is not None
    assert tried.attempts == 1


@pytest.mark.parametrize(
    ("refusal", "most"), [(Throttled, limits.THROTTLE_RETRIES_MAX), (Conflict, limits.CONFLICT_RETRIES_MAX)]
)
async def test_patience_ends(engine: FaultyDynamoEngine, refusal: type[SeriatimError], most: int) -> None:
    await found_group(engine)
    engine.faults.refusals["PutItem"] = [refusal(BUSY) for _ in range(100)]
    assert engine.faults.operations
    with pytest.raises(refusal):
        await engine.accounts().open_session(session(), timeout_s=60)
    assert engine.faults.operations == ["PutItem"] * (most + 1)


async def test_patience_ends_before_the_callers_time_does(engine: FaultyDynamoEngine) -> None:
    engine.faults.refusals["PutItem"] = [Conflict(BUSY) for _ in range(100)]
    with pytest.raises(Conflict):
        await engine.accounts().open_session(session(), timeout_s=0.3)
    assert engine.faults.operations.count("PutItem") < limits.CONFLICT_RETRIES_MAX + 1


async def test_what_may_have_been_applied_is_not_repeated(engine: FaultyDynamoEngine) -> None:
    await issue(engine)
    engine.faults.deaf_after["UpdateItem"] = 0
    with pytest.raises(OutcomeUnknown):
        await engine.accounts().count_attempt(PHONE, now_ms=NOW_MS, timeout_s=T_S)
    tried = await engine.accounts().code(PHONE, timeout_s=T_S)
    assert tried is not None
    assert tried.attempts == 1
    assert tried.mac == code().mac


# --- answers in parts -------------------------------------------------------------------------------------------------


async def test_what_a_batch_leaves_over_is_asked_for_again() -> None:
    left = {"chat_counters": {"Keys": [{"chat_id": {"S": "chat_2"}}], "ConsistentRead": True}}
    answers: list[dict[str, object]] = [
        {"Responses": {"chat_counters": [_counter("chat_1", 5)]}, "UnprocessedKeys": left},
        {"Responses": {"chat_counters": []}, "UnprocessedKeys": left},
        {"Responses": {"chat_counters": [_counter("chat_2", 7)]}, "UnprocessedKeys": {}},
    ]
    async with _canned(answers) as (store, server):
        found = await DynamoMessageLog(store).counters(["chat_1", "chat_2"], timeout_s=T_S)
        assert {chat_id: row.allocated for chat_id, row in found.items()} == {"chat_1": 5, "chat_2": 7}
        assert [msgspec.json.decode(each) for each in server.requests[1:]] == [{"RequestItems": left}] * 2


async def test_a_batch_that_is_never_finished_ends_in_time() -> None:
    left = {"chat_counters": {"Keys": [{"chat_id": {"S": "chat_1"}}], "ConsistentRead": True}}
    async with _canned([{"Responses": {}, "UnprocessedKeys": left}] * 100) as (store, _):
        with pytest.raises(Throttled):
            await DynamoMessageLog(store).counters(["chat_1"], timeout_s=0.5)


async def test_all_pages_of_members_are_read() -> None:
    def page(user_id: str, more: bool) -> dict[str, object]:
        key = {"chat_id": {"S": CHAT}, "user_id": {"S": user_id}}
        row = {**key, "role": {"S": "member"}, "joined_at": {"S": "t"}, "added_by": {"S": ANN}}
        return {"Items": [row], **({"LastEvaluatedKey": key} if more else {})}

    empty: dict[str, object] = {"Items": [], "LastEvaluatedKey": {"chat_id": {"S": CHAT}, "user_id": {"S": BOB}}}
    pages = [page(ANN, True), page(BOB, True), empty, page(CID, False)]
    async with _canned(pages) as (store, server):
        found = await DynamoCatalog(store).memberships(CHAT, timeout_s=T_S)
        assert [row.user_id for row in found] == [ANN, BOB, CID]
        starts = [msgspec.json.decode(each).get("ExclusiveStartKey") for each in server.requests]
        assert starts == [None, *(each.get("LastEvaluatedKey") for each in pages[:3])]


async def _send(ingest: Ingest, clock: SystemClock, client_message_id: str) -> Receipt:
    answered: asyncio.Future[Receipt | SeriatimError] = asyncio.get_running_loop().create_future()
    draft = Draft(chat_id=CHAT, sender_id=BOB, client_message_id=client_message_id, content="hello")
    ingest.submit(draft, deadline=clock.monotonic() + PATIENCE_S, answer=answered.set_result)
    receipt = await answered
    assert isinstance(receipt, Receipt), receipt
    return receipt


def _kinds(row: Row) -> list[str]:
    return sorted(f"{name}:{next(iter(value))}" for name, value in row.items())


def _counter(chat_id: str, allocated: int) -> dict[str, object]:
    zero = {"N": "0"}
    marks = {"published_through": zero, "published_message": {"NULL": True}, "members_version": zero}
    return {"chat_id": {"S": chat_id}, "sequence_counter": {"N": str(allocated)}, **marks}


@asynccontextmanager
async def _canned(answers: Sequence[Mapping[str, object]]) -> AsyncIterator[tuple[DynamoStore, Server]]:
    """A store that gives these answers, one after the other."""

    async def answer(server: Server, number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(http(msgspec.json.encode(answers[number])))

    async with serving(answer) as server:
        client = DynamoClient(
            server.url, region="r", credentials=lambda: AwsCredentials(key_id="k", secret="s"), clock=SystemClock()
        )
        try:
            yield DynamoStore(client, SystemClock()), server
        finally:
            await client.close()
